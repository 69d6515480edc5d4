"""The command line: verbs, exit codes, and one JSON value for each verb that is asked for it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_launcher import __version__
from kernel_launcher.__main__ import main
from kernel_launcher.errors import Fault, VeriError
from kernel_launcher.facts import machine
from kernel_launcher.launcher import client
from kernel_launcher.launcher.client import Failed, Refused, Reused
from kernel_launcher.launcher.watcher import Watcher
from kernel_launcher.preflight import environment
from kernel_launcher.protocol import index
from kernel_launcher.protocol.liveness import LauncherLock
from tests.unit.toys import CPU, ROWS, complete, model_folder, run_folder, status, step, tell

LONG_AGO = "2026-01-01T00:00:00.000Z"
TOKEN = "hf_" + "aB3" * 11


@pytest.fixture
def job_file(tmp_path, monkeypatch):
    """A job that is complete but for its weights being few; the machine has two cores and no GPU."""
    monkeypatch.setattr(machine, "this_machine", lambda: CPU)
    monkeypatch.setattr("kernel_launcher.preflight.resources.this_machine", lambda: CPU)
    monkeypatch.setattr(environment, "_version", lambda _: "1.0")
    monkeypatch.chdir(tmp_path)
    model_folder(tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "job.toml").write_text(
        '[job]\nname = "first"\n[model]\nbase = "./model"\n[dataset]\nid = "./rows.jsonl"\n[method]\nlora_rank = 4\n'
    )
    return "job.toml"


@pytest.fixture
def run(capsys):
    """Runs one command: exit code, output, errors."""

    def run(*words: str):
        code = main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def done(tmp_path):
    """A completed job."""
    entry = run_folder(tmp_path / "runs" / "first", "first", created_at=LONG_AGO)
    complete(entry)
    entry.run.rank(0).stdout.write_text("".join(f"line {n}\n" for n in range(5)))
    return entry


# Usage


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["fly"],
        ["plan"],
        ["plan", "a.toml", "b.toml"],
        ["run", "job.toml", "--gpu", "x", "--nothing"],
        ["jobs", "-n", "many"],
        ["jobs", "--status", "happy"],
        ["logs", "x", "--rank", "zero"],
    ],
)
def test_a_command_that_is_not_understood_ends_with_2(words, capsys):
    """Usage on standard error, nothing on standard output."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert 2 == caught.value.code
    said = capsys.readouterr()
    assert "" == said.out
    assert "usage: veri-jupyter" in said.err


@pytest.mark.parametrize(
    "words",
    [[TOKEN], ["run", "x.toml", f"--token={TOKEN}"], ["jobs", "--status", TOKEN], ["jobs", "-n", TOKEN]],
)
def test_usage_repeats_no_token(words, capsys):
    """What is wrong with a command is told by repeating it, but for what looks like a token."""
    with pytest.raises(SystemExit):
        main(words)
    said = capsys.readouterr().err
    assert "***" in said
    assert TOKEN not in said


def test_help_and_version(capsys):
    """Every verb of the contract is in the help."""
    for words in (["--help"], ["--version"]):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert 0 == caught.value.code
    said = capsys.readouterr().out
    assert __version__ in said
    verbs = "sample plan run jobs show logs stop resume checkpoints export data rehearse explain doctor"
    assert set() == set(verbs.split()) - set(said.split())


@pytest.mark.parametrize("verb", ["resume", "checkpoints", "export", "rehearse", "explain", "doctor"])
def test_a_verb_of_a_later_release_is_refused_by_name(verb, run):
    """A name that is kept free says so, in words and in JSON."""
    code, out, err = run(verb, "x@5")
    assert (1, "") == (code, out)
    assert f"veri-jupyter {verb} isn't in this release" in err
    code, out, err = run(verb, "--json")
    assert (1, "") == (code, err)
    assert "not_in_release" == json.loads(out)["error"]["code"]


# Plan


def test_plan_says_what_would_happen_and_starts_nothing(job_file, run, tmp_path):
    """Count, budget, decision, the line, what was filled in with reasons; no folder, no job."""
    code, out, err = run("plan", job_file, "--gpus", "2")
    assert (0, "") == (code, err)
    assert ["parameters", "budget", "decision"] == [line.partition(":")[0] for line in out.splitlines()[:3]]
    assert out.splitlines()[3].startswith("plan: dp=2 zero_stage=0 tp=1 cp=1 mbs=1")
    assert "default: learning_rate = 0.0002: usual for a LoRA adapter." in out
    assert not (tmp_path / "runs").exists()
    assert "no jobs\n" == run("jobs")[1]


def test_plan_as_json_has_the_contracts_keys(job_file, run):
    """One object with what was decided; of a model without known layers there is no peak, and the keys say so."""
    code, out, err = run("plan", job_file, "--gpu-type", "H100-80GB", "--json")
    assert (0, "") == (code, err)
    plan = json.loads(out)
    assert {"resolved_parallelism", "peak", "verdict", "warnings", "line"} <= set(plan)
    assert 8 == plan["resolved_parallelism"]["data_parallel_size"]
    assert (None, "can't say") == (plan["peak"], plan["verdict"])


def test_plan_as_json_has_the_peak(job_file, run):
    """Total, band, limit, phase and terms in bytes, the verdict, and the levers with their gain."""
    words = ("plan", job_file, "--set", "base=Qwen/Qwen3-4B", "--gpu-type", "L4-24GB", "--gpus", "4", "--json")
    plan = json.loads(run(*words)[1])
    assert "fits" == plan["verdict"]
    sizes = {"total_bytes", "tensor_bytes", "band_bytes", "limit_bytes"}
    assert sizes | {"phase", "terms", "phases"} == set(plan["peak"])
    assert abs(plan["peak"]["total_bytes"] - sum(plan["peak"]["terms"].values())) < 100
    assert all(lever["gain_bytes"] > 0 for lever in plan["levers"])


def test_set_beats_options_and_options_beat_the_file(job_file, run):
    """Three layers, as in the notebook."""
    words = ("plan", job_file, "--json", "--gpus", "1", "--set", "gpu_count=2", "--set", "method.batch_size=3")
    resolved = json.loads(run(*words)[1])["resolved_parallelism"]
    assert (2, 3) == (resolved["data_parallel_size"], resolved["micro_batch_size"])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["missing.toml"], "invalid_request", "there is no such job file"),
        (["model"], "invalid_request", "is no job file"),
        (["job.yaml"], "invalid_request", "TOML job files only"),
        (["job.toml", "--set", "lora_rnk=8"], "invalid_request", "Did you mean method.lora_rank?"),
        (["job.toml", "--set", "lora_rank"], "invalid_request", "Write --set lora_rank=8"),
        (["job.toml", "--gpus", "two"], "invalid_request", "Write 2, or 0,2, or 0-3"),
        (["job.toml", "--set", "base=./nothing"], "model_load_error", "there is no such folder"),
        (["job.toml", "--set", f"hf_token={TOKEN}"], "invalid_request", "hf_token = ***"),
        (["job.toml", "--set", f"optim={TOKEN}"], "invalid_request", "optim = '***'"),
    ],
)
def test_a_refusal_is_exit_1_in_words_or_in_json(words, code, said, job_file, run):
    """On standard error with its code, or as one JSON value on standard output; never a traceback, never a token."""
    exit_code, out, err = run("plan", *words)
    assert (1, "") == (exit_code, out)
    assert err.startswith(f"{code}: ")
    assert said in err
    exit_code, out, err = run("plan", *words, "--json")
    assert (1, "") == (exit_code, err)
    error = json.loads(out)["error"]
    assert code == error["code"]
    assert said in error["message"]
    assert error["details"]["faults"]
    assert TOKEN not in out


# Run


@pytest.fixture
def starts(monkeypatch, tmp_path):
    """Lets ``run`` start nothing, and end as is said; keeps what it asked for."""
    asked: list[dict[str, object]] = []

    def answer(outcome):
        def start(ready, **options):
            asked.append({"name": ready.spec.job.name, **options})
            return outcome

        monkeypatch.setattr(client, "start", start)
        return asked

    return answer


def test_run_follows_to_the_end(job_file, run, starts, done):
    """The plan, the folder, then the job to its end; 0 for a completed one."""
    asked = starts(Reused(done, Watcher(done).refresh()))
    code, out, err = run("run", job_file, "--name", "mine", "--run-dir", "there", "--again")
    assert (0, "") == (code, err)
    assert "plan: dp=2" in out
    assert f"job {done.id}: the same job, not started again (--again does)\nfolder {done.root}\n" in out
    assert "completed first: Done" in out
    assert "mine" == asked[0]["name"]
    assert "there" == str(asked[0]["run_dir"])
    assert asked[0]["again"] is True


def test_run_as_json_is_the_job(job_file, run, starts, done):
    """One value at the end, or at once when detached; whatever happens on the way goes to standard error."""
    starts(Reused(done, Watcher(done).refresh()))
    for words in (["--json"], ["--json", "--detach"]):
        code, out, _ = run("run", job_file, *words)
        assert 0 == code
        assert done.id == json.loads(out)["id"]


TAKEN = Refused(Fault("name", "first", "a job of this name is running.", "Stop it."))
LOST = Failed("the launcher did not come up", ("ImportError: x",))


@pytest.mark.parametrize(
    ("outcome", "error"), [(TAKEN, ("invalid_request", "is running")), (LOST, ("launch_failed", "ImportError: x"))]
)
def test_a_start_that_fails_is_exit_1(outcome, error, job_file, run, starts):
    """A refusal, or the end of the launcher's log."""
    starts(outcome)
    exit_code, _, err = run("run", job_file)
    assert 1 == exit_code
    code, said = error
    assert err.startswith(f"{code}: ")
    assert said in err
    assert code == json.loads(run("run", job_file, "--json")[1])["error"]["code"]


@pytest.mark.parametrize(("state", "code"), [("completed", 0), ("failed", 1), ("cancelled", 130)])
def test_the_exit_code_is_the_jobs_end(state, code, job_file, run, starts):
    """Done, failed, or stopped by somebody while one watched."""
    entry = run_folder(Path("runs", "first"), "first")
    tell(entry, status("provisioning"), status(state))
    starts(Reused(entry, Watcher(entry).refresh()))
    assert code == run("run", job_file)[0]
    assert code == run("logs", entry.id, "-f")[0]


def test_interrupting_detaches(job_file, run, starts, done, monkeypatch):
    """Ctrl-C while following leaves the job running, exit 0, and says how to see it again and how to stop it."""
    starts(client.Launched(done))
    monkeypatch.setattr(client, "follow", interrupted)
    monkeypatch.setattr(client, "follow_log", interrupted)
    for words in (["run", job_file], ["logs", done.id, "-f"]):
        code, _, err = run(*words)
        assert 0 == code
        assert f"attach: veri-jupyter logs -f {done.id}" in err
        assert f"stop:   veri-jupyter stop {done.id}" in err


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_interrupting_a_start_detaches_when_there_is_a_job(job_file, run, tmp_path, monkeypatch):
    """Once the launcher was called the job runs: exit 0, how to see and stop it. Before that, nothing was started."""
    monkeypatch.setattr(client, "start", interrupted)
    assert (130, "interrupted\n") == run("run", job_file)[::2]

    def start(ready, **_: object) -> None:
        index.add(replace(run_folder(tmp_path / "run", "begun"), fingerprint=ready.fingerprint))
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "start", start)
    code, _, err = run("run", job_file)
    assert 0 == code
    assert "attach: veri-jupyter logs -f begun-" in err
    assert "stop:   veri-jupyter stop begun-" in err


def test_interrupting_a_stop_says_what_to_do(run, done, monkeypatch):
    """The job may go on."""
    monkeypatch.setattr(client, "stop", interrupted)
    code, out, err = run("stop", done.id)
    assert (130, "") == (code, out)
    assert "before the job had ended" in err
    assert f"stop:   veri-jupyter stop {done.id}" in err


@pytest.mark.parametrize("folder", ["", "~no_such_user/x"])
def test_a_run_dir_that_is_no_path_is_refused(folder, job_file, run):
    """With key and value, before anything is checked."""
    code, _, err = run("run", job_file, "--run-dir", folder)
    assert 1 == code
    assert f"--run-dir = {folder!r}: is no path of a folder." in err


@pytest.mark.parametrize("name", ["../up", "a b", "", "x" * 65])
def test_a_name_that_is_no_folder_is_refused(name, job_file, run, tmp_path):
    """--name goes through the same check as a name in the file."""
    code, _, err = run("run", job_file, "--name", name)
    assert 1 == code
    assert "job.name" in err
    assert not (tmp_path / "runs").exists()


# Jobs, show, logs, stop


def test_jobs_are_listed_newest_first(run, tmp_path, done):
    """In words a line each, in JSON the objects of the contract; by state, and not more than asked for."""
    lost = run_folder(tmp_path / "lost", "lost", created_at="2026-02-01T00:00:00.000Z")
    code, out, _ = run("jobs", "--json")
    assert 0 == code
    assert [lost.id, done.id] == [job["id"] for job in json.loads(out)]
    assert [done.id] == [job["id"] for job in json.loads(run("jobs", "--json", "--status", "completed")[1])]
    assert [lost.id] == [job["id"] for job in json.loads(run("jobs", "--json", "-n", "1")[1])]
    assert [] == json.loads(run("jobs", "--json", "-n", "-1")[1])
    lines = run("jobs")[1].splitlines()
    assert [["failed", "0/?"], ["completed", "2/2"]] == [line.split()[1:3] for line in lines]


def test_no_jobs_is_no_error(run):
    """An empty list, in both forms."""
    assert (0, "no jobs\n", "") == run("jobs")
    assert (0, "[]\n", "") == run("jobs", "--json")


def test_show_and_stop_a_job_that_is_done(run, done):
    """Each names the job as one likes, and changes nothing of a job that has ended."""
    assert "completed first: Done" in run("show", "last")[1]
    assert done.id == json.loads(run("show", "first", "--json")[1])["id"]
    assert (0, f"{done.id}: completed\n", "") == run("stop", "first")
    assert "completed" == json.loads(run("stop", done.id, "--now", "--json")[1])["status"]


def test_stopping_in_vain_is_a_failure(run, tmp_path, monkeypatch):
    """A job that goes on although it was asked to stop (on another host, say) is not reported as stopped."""
    entry = run_folder(tmp_path / "run", "run")
    tell(entry, status("provisioning"))
    lock = LauncherLock(entry.run)
    monkeypatch.setattr(client, "stop", lambda entry, **_: Watcher(entry).refresh())
    assert (1, f"{entry.id}: provisioning\n", "") == run("stop", "run")
    os.close(lock._file)


def test_logs(run, done):
    """The last lines, of all or of one rank, in words or as a list; a rank that there is not is refused."""
    *_, warning, default = client.find("first").run.launcher_log.read_text().splitlines()
    planned = f"== launcher ==\n{warning}\n{default}\n"
    assert (0, f"{planned}== rank 0 ==\nline 3\nline 4\n", "") == run("logs", "first", "-n", "2")
    assert (0, "line 4\n", "") == run("logs", "first", "-n", "1", "--rank", "0")
    assert ["line 3", "line 4"] == json.loads(run("logs", "first", "-n", "2", "--rank", "0", "--json")[1])
    assert (0, "", "rank 1 has written nothing.\n") == run("logs", "first", "--rank", "1")
    for wrong in (("--rank", "7"), ("--rank", "-1"), ("-n", "0"), ("-n", "-3"), ("-f", "--rank", "7")):
        code, out, err = run("logs", "first", *wrong)
        assert (1, "") == (code, out)
        assert err.startswith("invalid_request: ")
    followed = f"== launcher ==\n{default}\n== rank 0 ==\nline 4\n"
    assert (0, followed, "") == run("logs", "first", "-f", "-n", "1")
    code, out, _ = run("logs", "first", "-f", "--json")
    assert 1 == code
    assert "--follow" in json.loads(out)["error"]["message"]


@pytest.mark.parametrize(
    "words", [["show", "nobody"], ["logs", "nobody"], ["stop", "nobody"], ["logs", "-f", "nobody"]]
)
def test_a_job_that_is_not_there(words, run):
    """Not found is exit 1, in words and in JSON."""
    code, out, err = run(*words)
    assert (1, "") == (code, out)
    assert err.startswith("job_not_found: there is no job 'nobody'")
    if "-f" not in words:
        code, out, _ = run(*words, "--json")
        assert (1, "job_not_found") == (code, json.loads(out)["error"]["code"])


def test_nothing_that_is_printed_holds_a_token(run, tmp_path, monkeypatch):
    """A token that got into a job's settings or log is stars in every verb."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    entry = run_folder(tmp_path / "run", "run", revision=TOKEN, created_at=LONG_AGO)
    entry.run.launcher_log.write_text(f"login {TOKEN}\n")
    tell(entry, step(1, 2, loss=1.0), rank=0)
    for words in (["show", "run"], ["logs", "run"], ["jobs"], ["stop", "run"]):
        for form in ([], ["--json"]):
            code, out, err = run(*words, *form)
            assert 0 == code
            assert TOKEN not in out + err
    assert "login ***" in run("logs", "run")[1]


def test_an_error_of_any_verb_holds_no_token(run, monkeypatch):
    """Words of others that end up in an error are cleaned at the door."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)

    def fail(_: str) -> None:
        raise VeriError("x", f"login {TOKEN}", details={"log_tail": TOKEN})

    monkeypatch.setattr(client, "find", fail)
    for form in ([], ["--json"]):
        code, out, err = run("show", "x", *form)
        assert 1 == code
        assert "login ***" in out + err
        assert TOKEN not in out + err
