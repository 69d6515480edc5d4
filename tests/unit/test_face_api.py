"""The functions behind the magics: what is asked reaches the engine as it was meant, and comes back as handles."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import veri_jupyter
from kernel_launcher import preflight
from kernel_launcher.errors import InvalidRequest, JobFailed, JobNotFound, LaunchFailed, VeriError
from kernel_launcher.launcher import answers, client
from kernel_launcher.protocol import index
from kernel_launcher.protocol.events import EventReader
from kernel_launcher.protocol.files import write_json
from tests.kernel.fakes import FakeJob
from tests.unit.toys import complete, prepared, run_folder
from veri_jupyter import api, start
from veri_jupyter.job import Detached
from veri_jupyter.monitor import show

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel_launcher.spec import JobSpec

FILE = """
[model]
base = "./model"
[dataset]
id = "./rows.jsonl"
[method]
type = "sft_text"
lora_rank = 8
[resources]
gpu_type = "H100-80GB"
"""


class Asked:
    """What ``preflight.prepare`` was asked."""

    spec: JobSpec
    rows: object
    to_run: bool
    ask_hub: bool
    trace: bool


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    """Stops each request where it leaves the face."""
    monkeypatch.chdir(tmp_path)
    seen = Asked()

    def prepare(
        spec: JobSpec, rows: object = None, *, to_run: bool = True, ask_hub: bool = False, trace: bool = False
    ) -> None:
        seen.spec, seen.rows, seen.to_run, seen.ask_hub, seen.trace = spec, rows, to_run, ask_hub, trace
        raise InvalidRequest([])

    monkeypatch.setattr(preflight, "prepare", prepare)
    return seen


def refused(call: Callable[..., object], *args: object, **settings: object) -> None:
    with pytest.raises(InvalidRequest):
        call(*args, **settings)


def test_a_model_and_rows_are_enough(asked: Asked) -> None:
    """Keyword arguments are settings; rows go along as they are."""
    rows = [{"prompt": "a", "completion": "b"}]
    refused(api.train, "./model", rows, lora_rank=8, name="mine", gpus=2)
    assert asked.rows is rows
    assert asked.to_run
    assert (8, "mine", 2) == (asked.spec.method.lora_rank, asked.spec.job.name, asked.spec.resources.gpu_count)


def test_data_may_be_a_path(asked: Asked, tmp_path: Path) -> None:
    """A file in the notebook's folder."""
    (tmp_path / "rows.jsonl").touch()
    refused(api.plan, "./model", "rows.jsonl")
    assert (None, False) == (asked.rows, asked.to_run)
    assert str(tmp_path / "rows.jsonl") == asked.spec.dataset.id


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, "H100-80GB"), ({"gpu_type": "auto"}, "auto"), ({"gpu_type": "CPU"}, "CPU")],
)
def test_a_default_gives_way_to_the_file_and_a_given_value_does_not(
    asked: Asked, settings: dict[str, Any], expected: str
) -> None:
    """``gpu_type="auto"`` on the call beats the file, although it is the default."""
    refused(api.train, FILE, **settings)
    assert expected == asked.spec.resources.gpu_type


def test_a_setting_given_twice_is_refused_not_lost(asked: Asked) -> None:
    """``gpus`` and ``gpu_count`` that differ are a conflict."""
    with pytest.raises(InvalidRequest, match="gpu_count"):
        api.train("./model", [], gpus=2, gpu_count=4)
    assert not hasattr(asked, "spec")


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (2, (2, None)),
        ("2", (2, None)),
        ([0, 2], (None, (0, 2))),
        ("0,2", (None, (0, 2))),
        ("0-3", (None, (0, 1, 2, 3))),
    ],
)
def test_gpus_are_a_number_or_a_list(asked: Asked, gpus: Any, expected: tuple[Any, Any]) -> None:
    """How many, or which."""
    refused(api.train, "./model", [], gpus=gpus)
    assert expected == (asked.spec.resources.gpu_count, asked.spec.resources.gpu_ids)


def test_the_verbs_of_the_client_ask_for_the_same(asked: Asked) -> None:
    """``create`` and ``create_from_config`` are ``train`` under other names."""
    jobs = veri_jupyter.Client().training_jobs
    refused(
        jobs.create,
        base_model="./model",
        dataset_id="some/rows",
        hyperparameters={"lora_rank": 8, "global_batch_size": 64},
        gpu_type="L4-24GB",
        gpu_count=4,
    )
    assert (8, 64, 4) == (
        asked.spec.method.lora_rank, asked.spec.method.global_batch_size, asked.spec.resources.gpu_count
    )  # fmt: skip
    refused(jobs.create_from_config, FILE, lora_rank=16)
    assert (16, "H100-80GB") == (asked.spec.method.lora_rank, asked.spec.resources.gpu_type)


def test_what_is_not_here_is_refused_before_anything_is_read(asked: Asked) -> None:
    """Options of a later release are refused by name."""
    with pytest.raises(VeriError, match="isn't in this release") as caught:
        api.train("x", [], after="y")
    assert "not_in_release" == caught.value.code
    assert not hasattr(asked, "spec")


@pytest.mark.parametrize("name", ["rehearse", "doctor"])
def test_functions_of_a_later_release(name: str) -> None:
    """Known names are refused, unknown ones are unknown."""
    with pytest.raises(VeriError, match=f"veri_jupyter.{name} isn't in this release"):
        getattr(veri_jupyter, name)
    assert not hasattr(veri_jupyter, f"{name}x")


def test_a_launcher_that_does_not_come_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error shows the end of its log."""
    monkeypatch.setattr(client, "start", lambda *_, **__: client.Failed("it did not come up", ("a", "No space left")))
    prepared: Any = type("Prepared", (), {"plan": type("Plan", (), {"describe": list})})
    with pytest.raises(LaunchFailed, match="No space left"):
        start.launch(prepared)


def test_jobs_are_listed_newest_first_and_page_by_page(tmp_path: Path) -> None:
    """By status, by method, and after the last one of the page before."""
    names = ["a", "b", "c"]
    made = [FakeJob(tmp_path / name, name) for name in names]
    made[1].status("cancelled")
    verbs = veri_jupyter.Client().training_jobs
    ids = [entry.id for entry in index.entries()]
    assert ids == [job.id for job in veri_jupyter.jobs()]
    assert [made[1].entry.id] == [job.id for job in veri_jupyter.jobs(status="cancelled")]
    assert ids[:2] == [job.id for job in verbs.list(limit=2)]
    assert ids[2:] == [job.id for job in verbs.list(limit=2, after=ids[1])]
    assert [] == verbs.list(method="dpo")
    assert 3 == len(verbs.list(method="sft_text"))
    with pytest.raises(InvalidRequest, match="no such status"):
        veri_jupyter.jobs(status="done")


def test_of_jobs_that_have_ended_no_event_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists in every form cost a status file a job, however long the jobs were; the last loss is there."""
    complete(run_folder(tmp_path / "done", "done"))

    def unread(_: EventReader) -> None:
        raise AssertionError("events were read")

    monkeypatch.setattr(EventReader, "read", unread)
    (job,) = veri_jupyter.jobs()
    assert [job] == veri_jupyter.jobs(status="completed") == veri_jupyter.Client().training_jobs.list()
    assert [] == veri_jupyter.jobs(status="failed")
    assert repr(job).startswith("<Job ")
    assert "✓ completed done · Done in 0 s, 2 steps · loss 2.000" == job.brief.line().replace("1 s", "0 s")


def test_a_brief_look_at_a_failed_job(tmp_path: Path) -> None:
    """The status file knows why it failed, too."""
    fake = FakeJob(tmp_path / "run", "mine")
    fake.step(3)
    fake.fail(code="oom", message="rank 0/1 failed: too much\nplan: dp=1", attribution="customer")
    job = veri_jupyter.attach("mine")
    long = job.summary
    write_json(fake.entry.run.status, fake.look().to_status())
    assert ("failed", long.progress, long.failure) == (job.status, job.brief.progress, job.brief.failure)


WRONG: dict[str, Any] = {
    "run_dir=5": ("run_dir", "5", lambda _: api.train("x", [], run_dir=5)),  # type: ignore[arg-type]
    "run_dir=NUL": ("run_dir", r"'a\x00b'", lambda _: api.train("x", [], run_dir="a\0b")),
    "run_dir=''": ("run_dir", "''", lambda _: api.train("x", [], run_dir="")),
    "run_dir=~": ("run_dir", "'~no_user/x'", lambda _: api.train("x", [], run_dir="~no_user/x")),
    "again": ("again", "'no'", lambda _: api.train("x", [], again="no")),  # type: ignore[arg-type]
    "attach(5)": ("job_id", "5", lambda _: api.attach(5)),  # type: ignore[arg-type]
    "attach(None)": ("job_id", "None", lambda _: api.attach(None)),  # type: ignore[arg-type]
    "stop": ("now", "'no'", lambda job: job.stop(now="no")),
    "sample": ("directory", "5", lambda _: api.sample(5)),  # type: ignore[arg-type]
    "limit=-1": ("limit", "-1", lambda _: api.jobs(limit=-1)),
    "limit=True": ("limit", "True", lambda _: api.jobs(limit=True)),
    "status": ("status", "5", lambda _: api.jobs(status=5)),  # type: ignore[arg-type]
    "list": ("limit", "'a'", lambda _: veri_jupyter.Client().training_jobs.list("a")),  # type: ignore[arg-type]
    "after": ("after", "5", lambda _: veri_jupyter.Client().training_jobs.list(after=5)),  # type: ignore[arg-type]
    "create": (
        "hyperparameters",
        "5",
        lambda _: veri_jupyter.Client().training_jobs.create(base_model="x", hyperparameters=5),  # type: ignore[arg-type]
    ),
    "generate(5)": ("prompts", "5", lambda job: job.generate(5)),
    "generate([5])": ("prompts", "5", lambda job: job.generate(["a", 5])),
    "a dict": ("prompts", "{'role': 'user'}", lambda job: job.generate({"role": "user"})),
    "a message without content": ("prompts", "[{'role': 'user'}]", lambda job: job.generate([{"role": "user"}])),
    "base": ("base", "1", lambda job: job.generate("a", base=1)),
    "max_new_tokens": ("max_new_tokens", "0", lambda job: job.generate("a", max_new_tokens=0)),
    "temperature": ("temperature", "'hot'", lambda job: job.generate("a", temperature="hot")),
    "timeout": ("timeout", "'a'", lambda job: job.wait("a")),
    "timeout=nan": ("timeout", "nan", lambda job: job.wait(float("nan"))),
    "no such metric": ("keys", "'los'", lambda job: job.metrics("los")),
    "no metric": ("keys", "5", lambda job: job.metrics(5)),
    "from_step": ("from_step", "'a'", lambda job: job.metrics(from_step="a")),
    "max_points": ("max_points", "-1", lambda job: job.metrics(max_points=-1)),
    "rank": ("rank", "'a'", lambda job: job.logs("a")),
    "n": ("n", "-1", lambda job: job.logs(n=-1)),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_type_is_refused_with_key_and_value(case: str, tmp_path: Path) -> None:
    """Not a TypeError from somewhere inside; nothing is started, asked or waited for."""
    key, value, call = WRONG[case]
    fake = FakeJob(tmp_path / "run", "mine")
    fake.step(1)
    with pytest.raises(InvalidRequest) as caught:
        call(veri_jupyter.attach("mine"))
    assert [(key, value)] == [(fault.key, fault.value) for fault in caught.value.faults]
    assert "provisioning" == fake.look().status


TOKEN = "hf_abcdefghijklmnop1234"


@pytest.mark.parametrize(
    "call",
    [
        lambda _: api.jobs(TOKEN),
        lambda _: api.attach(TOKEN),
        lambda _: api.stop(TOKEN),
        lambda _: api.train("x", [], again=TOKEN),  # type: ignore[arg-type]
        lambda folder: api.sample(folder / "file" / TOKEN),
    ],
)
def test_no_error_repeats_a_token(call: Callable[[Path], object], tmp_path: Path) -> None:
    """In message, hint and details."""
    (tmp_path / "file").touch()
    with pytest.raises(VeriError) as caught:
        call(tmp_path)
    assert "***" in str(caught.value)
    assert TOKEN not in str(caught.value) + repr(caught.value) + json.dumps(caught.value.to_json())


def test_an_interrupted_start_says_that_the_job_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the launcher was called, the job runs: with its id, how to see it and how to stop it."""
    before = run_folder(tmp_path / "before", "before", created_at="2025-01-01T00:00:00.000Z")
    made: list[index.Entry] = []

    def begins(*_: object, **__: object) -> None:
        made.append(run_folder(tmp_path / "run", "mine"))
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "start", begins)
    with pytest.raises(Detached) as caught:
        start.launch(prepared())
    assert before.fingerprint == made[0].fingerprint
    said = "\n".join(caught.value._render_traceback_())
    assert "the job goes on" in said
    assert f"%veri_attach {made[0].id}" in said
    assert f"%veri_stop {made[0].id}" in said


def test_an_interrupt_before_the_start_is_only_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was started, nothing is said of a job."""
    run_folder(tmp_path / "before", "before", created_at="2025-01-01T00:00:00.000Z")
    monkeypatch.setattr(client, "start", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        start.launch(prepared())
    assert KeyboardInterrupt is caught.type


def test_an_interrupted_stop_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job may go on: how to see it, how to stop it."""
    job_id = FakeJob(tmp_path / "run", "mine").entry.id
    monkeypatch.setattr(client, "stop", interrupted)
    with pytest.raises(Detached, match="before the job had ended") as caught:
        api.stop("mine")
    assert f"%veri_stop {job_id}" in str(caught.value)


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_stop_returns_when_the_end_is_on_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job that has ended; for one that goes on there is nothing to wait for."""
    fake = FakeJob(tmp_path / "run", "mine")
    settled: list[str] = []
    monkeypatch.setattr(show.pump, "settle", settled.append)
    monkeypatch.setattr(client, "stop", lambda *_, **__: fake.look())
    assert "provisioning" == veri_jupyter.stop("mine").status
    assert [] == settled
    fake.status("cancelled")
    assert "cancelled" == veri_jupyter.stop("mine").status
    assert [fake.entry.id] == settled


CHAT = [{"role": "system", "content": "short"}, {"role": "user", "content": "a"}]


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), (CHAT, [CHAT]), ([CHAT, "a"], [CHAT, "a"]), (("a",), ["a"])],
)
def test_a_text_is_one_prompt_and_so_is_a_chat(
    prompts: Any, expected: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each alone or in a list; a chat is never taken for several prompts."""
    FakeJob(tmp_path / "run", "mine").status("completed")
    asked: dict[str, Any] = {}
    monkeypatch.setattr(answers, "generate", lambda _, prompts, **options: asked.update(options, prompts=prompts))
    veri_jupyter.attach("mine").generate(prompts, max_new_tokens=5)
    assert {"prompts": expected, "base": False, "max_new_tokens": 5, "temperature": 0.0} == asked
    with pytest.raises(TypeError, match="model"):
        veri_jupyter.attach("mine").generate(prompts, model="/other")  # type: ignore[call-arg]


def test_only_a_job_that_has_ended_is_deleted_and_its_folder_stays(tmp_path: Path) -> None:
    """Deleting forgets; the model is the user's."""
    fake = FakeJob(tmp_path / "run", "mine")
    verbs = veri_jupyter.Client().training_jobs
    with pytest.raises(InvalidRequest, match="only a job that has ended"):
        verbs.delete("mine")
    fake.status("completed")
    verbs.delete("mine")
    assert fake.entry.run.spec.exists()
    with pytest.raises(JobNotFound):
        verbs.get("mine")


def test_metrics_are_cut_to_steps_and_thinned(tmp_path: Path) -> None:
    """At most so many rows, spread evenly, first and last among them."""
    fake = FakeJob(tmp_path / "run", "mine")
    for step in range(1, 101):
        fake.step(step, 100, tokens_per_second=float(step))
    job = veri_jupyter.attach("mine")
    assert {"step": 3, "loss": pytest.approx(3.1), "tokens_per_second": 3.0} == job.metrics()[2]
    assert [{"step": 7, "tokens_per_second": 7.0}] == job.metrics(["tokens_per_second"], from_step=7, to_step=7)
    assert [1, 26, 51, 75, 100] == [row["step"] for row in job.metrics(max_points=5)]
    assert [100] == [row["step"] for row in job.metrics(max_points=1)]
    assert job.metrics(["loss"]) == job.metrics("loss")
    with pytest.raises(InvalidRequest, match=r"Did you mean loss\?"):
        job.metrics(["lss"])


def test_before_the_first_step_there_is_no_row(tmp_path: Path) -> None:
    """Whoever looks too early gets no rows, whatever they ask for."""
    FakeJob(tmp_path / "run", "mine")
    assert [] == veri_jupyter.attach("mine").metrics("loss")


def test_a_job_ends_as_it_ends(tmp_path: Path) -> None:
    """A completed job gives its folder; a stopped one raises; one that goes on runs into the timeout."""
    fake = FakeJob(tmp_path / "run", "mine")
    job = veri_jupyter.attach("mine")
    assert repr(job).startswith("<Job mine-20250101-101010-ab12: ○ provisioning mine")
    with pytest.raises(TimeoutError):
        job.wait(timeout=0)
    fake.status("cancelled")
    with pytest.raises(JobFailed, match="was stopped at step 0") as caught:
        job.wait()
    assert ("cancelled", None) == (caught.value.code, caught.value.error)
    other = FakeJob(tmp_path / "other", "other")
    other.status("completed")
    assert tmp_path / "other" / "final" == veri_jupyter.attach("other").final_dir


def test_a_run_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    """A file that is missing is an error of ours, with its path."""
    job = veri_jupyter.Job(FakeJob(tmp_path / "run", "mine").entry)
    with pytest.raises(VeriError, match=r"plan\.json cannot be read"):
        _ = job.plan


def test_a_sample_that_fails_says_why(tmp_path: Path) -> None:
    """The message of the other process is the error's."""
    (tmp_path / "file").touch()
    with pytest.raises(VeriError, match="file"):
        api.sample(tmp_path / "file")


def test_importing_is_cheap() -> None:
    """Nothing that the core needs is imported before it is used."""
    code = "import sys, veri_jupyter, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"pydantic", "psutil", "pyarrow", "platformdirs", "IPython"}.isdisjoint(json.loads(done.stdout))
