"""Starting a job, with a stand-in for the launcher."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from kernel_launcher.launcher import client
from kernel_launcher.launcher.client import Failed, Launched, Refused, Reused, Watcher
from kernel_launcher.protocol import index
from kernel_launcher.protocol.files import read_json
from kernel_launcher.protocol.liveness import is_alive
from kernel_launcher.protocol.states import Status
from tests.unit.toys import ANSWERS, complete, interpreter, launcher_of, prepared, run_folder

LONG_AGO = "2026-01-01T00:00:00.000Z"


def test_a_job_is_started_beside_the_notebook_and_listed(jobs, tmp_path):
    """A start returns once the launcher has reported; folder, index and id are where and what one expects."""
    outcome = jobs(name="first")
    assert isinstance(outcome, Launched)
    entry = outcome.entry
    assert str(tmp_path / "runs" / "first") == entry.root
    assert [entry] == index.entries()
    assert Status.PROVISIONING is Watcher(entry).refresh().status
    stem, day, clock, four = entry.id.rsplit("-", 3)
    assert ("first", 8, 6, 4) == (stem, len(day), len(clock), len(four))
    stored = read_json(entry.run.spec)
    assert entry.id == stored["job"]["id"]
    assert is_alive(entry.run)


def test_a_launcher_is_a_session_of_its_own_with_no_pipe_of_ours(jobs):
    """It outlives the kernel: another session, nothing inherited for input and output, our variables filtered."""
    process = launcher_of(jobs(name="first").entry)
    assert os.getsid(process.pid) != os.getsid(0)
    targets = [Path(f"/proc/{process.pid}/fd/{number}").resolve() for number in (0, 1, 2)]
    assert Path("/dev/null") == targets[0]
    assert "launcher.log" == targets[1].name == targets[2].name
    assert "" == process.environ()["CUDA_VISIBLE_DEVICES"]


def test_running_a_cell_again_finds_the_job_again(jobs, tmp_path):
    """The same spec and data: re-attached while it runs, shown when it is done; ``again`` starts anew."""
    first = jobs().entry
    same = jobs()
    assert isinstance(same, Reused)
    assert first == same.entry
    assert not same.view.status.is_terminal
    another = jobs(again=True)
    assert isinstance(another, Launched)
    assert ("model", "model-2") == (first.name, another.entry.name)
    assert str(tmp_path / "runs" / "model-2") == another.entry.root


def test_a_done_job_is_shown_and_a_failed_one_started_anew(jobs, tmp_path):
    """Done means that its model is still there; a failed or stopped job is no reason not to try again."""
    python = str(interpreter(tmp_path, ANSWERS))
    done = run_folder(tmp_path / "runs" / "model", "model", created_at=LONG_AGO, python=python)
    complete(done)
    found = jobs()
    assert isinstance(found, Reused)
    assert (done, Status.COMPLETED) == (found.entry, found.view.status)
    done.run.final.rmdir()
    anew = jobs()
    assert isinstance(anew, Launched)
    assert str(tmp_path / "runs" / "model-2") == anew.entry.root


@pytest.mark.parametrize("different", [{"max_steps": 3}, {"digest": "other rows"}, {"base_model": "owner/other"}])
def test_another_job_is_another_job(different, jobs):
    """Another setting, other rows or another model is not the job that runs."""
    first = jobs()
    second = jobs(**different)
    assert isinstance(second, Launched)
    assert first.entry.root != second.entry.root


def test_a_name_belongs_to_its_job_while_it_runs(jobs):
    """Another spec under the name of a running job is refused; once that has ended, the name is free."""
    first = jobs(name="first").entry
    refused = jobs(name="first", max_steps=3)
    assert isinstance(refused, Refused)
    assert "name" == refused.fault.key
    assert first.id in refused.fault.reason
    assert [first] == index.entries()
    client.stop(first, patience=20)
    second = jobs(name="first", max_steps=3)
    assert isinstance(second, Launched)
    assert "first-2" == Path(second.entry.root).name
    assert "first" == second.entry.name


def test_two_cells_at_once_start_one_job(jobs, tmp_path):
    """A cell that is run thrice at the same instant starts one job, not three in one folder."""
    interpreter(tmp_path, ANSWERS)
    outcomes: list[object] = []
    threads = [threading.Thread(target=lambda: outcomes.append(jobs())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 == sum(isinstance(outcome, Launched) for outcome in outcomes)
    assert 2 == sum(isinstance(outcome, Reused) for outcome in outcomes)
    assert 1 == len(index.entries())


def test_a_folder_of_ones_own(jobs, tmp_path, monkeypatch):
    """``--run-dir`` is the folder of that one job, also when it is relative; run again, the job in it is found."""
    monkeypatch.chdir(tmp_path)
    beside = jobs()
    mine = jobs(run_dir=Path("mine"))
    assert isinstance(mine, Launched)
    assert str(tmp_path / "mine") == mine.entry.root
    again = jobs(run_dir=tmp_path / "mine")
    assert isinstance(again, Reused)
    assert mine.entry == again.entry != beside.entry


def test_a_folder_with_something_in_it_is_refused_and_left_alone(jobs, tmp_path):
    """A thesis is not overwritten, and no job is entered."""
    (tmp_path / "thesis.txt").write_text("x")
    refused = jobs(run_dir=tmp_path)
    assert isinstance(refused, Refused)
    assert "is not an empty folder" in refused.fault.reason
    assert [] == index.entries()
    assert "x" == (tmp_path / "thesis.txt").read_text()


@pytest.mark.parametrize("place", ["a file in the way", "a folder that cannot be made"])
def test_a_place_that_cannot_be_written_is_refused(place, jobs, tmp_path):
    """A run folder that cannot be made is a refusal with the reason, not a traceback, and leaves nothing."""
    (tmp_path / "file").write_text("")
    where = tmp_path / "file" if place.startswith("a file") else Path("/proc/nothing/here")
    refused = jobs(run_dir=where)
    assert isinstance(refused, Refused)
    assert "is not an empty folder" in refused.fault.reason or "cannot be written" in refused.fault.reason
    assert [] == index.entries()


@pytest.mark.parametrize("was_there", [True, False])
@pytest.mark.parametrize("breaks", ["writing the plan", "the index", "the launcher"])
def test_a_start_that_comes_to_nothing_leaves_nothing(breaks, was_there, tmp_path, monkeypatch):
    """A folder that we made is gone; an empty one that was the user's is empty again."""
    folder = tmp_path / "mine"
    if was_there:
        folder.mkdir()
    asked = prepared()

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    if breaks == "writing the plan":
        monkeypatch.setattr(type(asked), "write", lambda _, run, **__: (run.snapshot.touch(), full()))
    else:
        monkeypatch.setattr(*((index, "add") if breaks == "the index" else (client, "_launcher")), full)
    outcome = client.start(asked, base_dir=tmp_path, run_dir=folder)
    assert isinstance(outcome, Failed if breaks == "the launcher" else Refused)
    assert "No space left on device" in str(outcome)
    assert was_there == folder.exists()
    assert [] == (list(folder.iterdir()) if was_there else [])
    assert [] == index.entries()


def test_a_launcher_that_ends_at_once_is_a_failure_with_its_words(jobs, tmp_path, monkeypatch):
    """An interpreter that cannot run our launcher: the end of its log, without secrets, and no job in the list."""
    monkeypatch.setenv("HF_TOKEN", "hf_" + "aB3" * 11)
    python = tmp_path / "broken"
    python.write_text('#!/bin/sh\necho "ModuleNotFoundError: kernel_launcher $HF_TOKEN" >&2\nexit 3\n')
    python.chmod(0o755)
    failed = client.start(prepared(python=str(python)), base_dir=tmp_path)
    assert Failed("the launcher did not come up", ("ModuleNotFoundError: kernel_launcher ***",)) == failed
    assert [] == index.entries()


def test_an_interpreter_that_cannot_be_run_is_a_failure(tmp_path):
    """A file that the system does not execute is said, and no job is in the list."""
    (tmp_path / "python").write_text("not a program")
    (tmp_path / "python").chmod(0o755)
    failed = client.start(prepared(python=str(tmp_path / "python")), base_dir=tmp_path)
    assert isinstance(failed, Failed)
    assert "could not be started" in failed.message
    assert [] == index.entries()


def test_a_launcher_that_never_reports_is_given_up(tmp_path, monkeypatch):
    """A launcher that says nothing is ended, and is a failure."""
    monkeypatch.setattr(client, "START_SECONDS", 0.3)
    silent = tmp_path / "silent"
    silent.write_text(f"#!{sys.executable} -S\nimport time\ntime.sleep(600)\n")
    silent.chmod(0o755)
    assert isinstance(client.start(prepared(python=str(silent)), base_dir=tmp_path), Failed)
    while any(str(silent) in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])):
        time.sleep(0.05)
