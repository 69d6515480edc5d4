"""Finding, watching and stopping a job from outside, with a stand-in for the launcher."""

from __future__ import annotations

import json
import os
import subprocess
import time

import psutil
import pytest

from kernel_launcher.errors import JobNotFound
from kernel_launcher.launcher import client, watcher
from kernel_launcher.launcher.client import Watcher
from kernel_launcher.launcher.job_object import job_object
from kernel_launcher.planner import Plan
from kernel_launcher.protocol import control
from kernel_launcher.protocol.files import read_json
from kernel_launcher.protocol.liveness import LauncherLock, is_alive
from kernel_launcher.protocol.states import Status
from tests.unit.toys import DEAF, complete, dead, launcher_of, run_folder, step, tell

LONG_AGO = "2026-01-01T00:00:00.000Z"


# Find


def test_a_job_is_found_by_id_prefix_name_and_last(tmp_path):
    """However one names it, as long as it is one job."""
    old = run_folder(tmp_path / "1", "first", created_at="2026-01-01T00:00:00.000Z")
    new = run_folder(tmp_path / "2", "first", created_at="2026-01-02T00:00:00.000Z")
    other = run_folder(tmp_path / "3", "firstborn", created_at="2026-01-03T00:00:00.000Z")
    assert other == client.find("last")
    assert new == client.find("first")
    assert old == client.find(old.id)
    assert old == client.find("first-20260101")
    with pytest.raises(JobNotFound, match="fits 3 jobs") as caught:
        client.find("fir")
    assert old.id in caught.value.hint
    with pytest.raises(JobNotFound, match="there is no job 'second'") as caught:
        client.find("second")
    assert other.id in caught.value.hint


def test_a_numbered_folder_is_never_taken_for_the_beginning_of_an_id(tmp_path):
    """``first-2`` is the job in that folder, and nobody where there is none: else stop would end another job."""
    old = run_folder(tmp_path / "first", "first", created_at="2026-01-01T00:00:00.000Z")
    for key in ("first-2", "first-", "first-2026010"):
        with pytest.raises(JobNotFound, match="there is no job"):
            client.find(key)
    again = run_folder(tmp_path / "first-2", "first", created_at="2026-01-01T00:01:00.000Z")
    assert again == client.find("first-2")
    assert again == client.find("first")
    assert old == client.find(old.id)


@pytest.mark.parametrize("key", ["", "last", "x", "../../etc"])
def test_where_there_is_no_job_none_is_found(key):
    """No job at all is said as such."""
    with pytest.raises(JobNotFound) as caught:
        client.find(key)
    assert "None was started." == caught.value.hint


# Watch


def test_a_job_whose_launcher_was_killed_has_failed(jobs):
    """kill -9 to the launcher: at the next look the job has failed, with a reason, and its status file says so."""
    entry = jobs(DEAF).entry
    tell(entry, step(1, 9, loss=2.0), rank=0)
    look = Watcher(entry)
    assert Status.PROVISIONING is look.refresh().status
    launcher_of(entry).kill()
    while is_alive(entry.run):
        time.sleep(0.01)
    view = look.refresh()
    assert Status.FAILED is view.status
    assert view.failure is not None
    assert ("launcher_lost", "platform") == (view.failure.code, view.failure.attribution)
    stored = read_json(entry.run.status)
    assert ("failed", 1, 2.0, "launcher_lost") == (
        stored["status"],
        stored["step"],
        stored["loss"],
        stored["error"]["code"],
    )
    assert stored["completed_at"]
    later = Watcher(entry).refresh()
    assert (view.status, view.reason, view.completed_at) == (later.status, later.reason, later.completed_at)
    assert "failed" == job_object(entry)["status"]


def test_ranks_that_a_dead_launcher_left_are_ended(jobs, request):
    """Whoever looks next cleans up: a rank that still runs without its launcher is ended."""
    entry = jobs(DEAF).entry
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    request.addfinalizer(child.wait)
    request.addfinalizer(child.kill)
    rank = psutil.Process(child.pid)
    tell(
        entry,
        ("process", {"host": read_json(entry.run.lock)["host"], "pid": rank.pid, "pid_created": rank.create_time()}),
        rank=0,
    )
    launcher_of(entry).kill()
    while is_alive(entry.run):
        time.sleep(0.01)
    Watcher(entry).refresh()
    assert dead(rank)


def test_a_start_is_not_taken_for_a_death(tmp_path):
    """Between the folder and the lock nobody holds anything: a queued job; after a minute, a lost one."""
    young = run_folder(tmp_path / "young", "young")
    assert Status.QUEUED is Watcher(young).refresh().status
    old = run_folder(tmp_path / "old", "old", created_at=LONG_AGO)
    view = Watcher(old).refresh()
    assert (Status.FAILED, LONG_AGO) == (view.status, view.completed_at)
    assert {"status": "failed", "step": 0, "started_at": ""}.items() <= read_json(old.run.status).items()
    assert "failed" == job_object(old)["status"]


def test_the_end_that_only_the_status_file_tells_is_believed(tmp_path):
    """The disk was full when the last event should have been written: a completed job is not called lost."""
    entry = run_folder(tmp_path / "run", created_at=LONG_AGO)
    complete(entry)
    lines = entry.run.launcher_events.read_text().splitlines(keepends=True)
    entry.run.launcher_events.write_text("".join(lines[:-1]))
    view = Watcher(entry).refresh()
    assert (Status.COMPLETED, "the model is complete", None) == (view.status, view.reason, view.failure)
    assert "completed" == read_json(entry.run.status)["status"]


def test_a_folder_that_cannot_be_written_can_be_looked_at(tmp_path, monkeypatch):
    """A read-only run of somebody else's, or a full disk: the look says what it found, each time the same."""
    entry = run_folder(tmp_path / "run", created_at=LONG_AGO)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(watcher, "write_json", full)
    for _ in range(2):
        assert Status.FAILED is Watcher(entry).refresh().status
    assert not entry.run.status.exists()


def test_following_ends_with_the_job(jobs):
    """Each look is handed on; the last one is the end. Waiting may be limited, and the job goes on."""
    entry = jobs().entry
    with pytest.raises(TimeoutError, match="it goes on"):
        client.follow(entry, lambda _: None, timeout=0, every=0.01)
    looks: list[Status] = []
    control.send(entry.run, "stop")
    view = client.follow(entry, lambda view: looks.append(view.status), every=0.01)
    assert Status.CANCELLED is view.status is looks[-1]
    assert not any(look.is_terminal for look in looks[:-1])


def test_a_log_is_followed_to_its_end(tmp_path):
    """The last lines, then each new one once it is whole, from every file; the very last also without its end."""
    entry = run_folder(tmp_path / "run")
    run = entry.run
    lock = LauncherLock(run)
    run.rank(0).root.mkdir(parents=True)
    run.rank(0).stdout.write_text("old 1\nold 2\n")
    lines = client.follow_log(entry, rank=0, n=1, every=0.01)
    assert "old 2" == next(lines)
    with run.rank(0).stdout.open("a") as file:
        file.write("new\nhal")
    assert "new" == next(lines)
    run.rank(0).stderr.write_text("Traceback")
    with run.rank(0).stdout.open("a") as file:
        file.write("f")
    complete(entry)
    assert ["half", "Traceback"] == list(lines)
    assert ["== rank 0 ==", "new", "half", "Traceback"] == client.log_lines(entry, n=3)[-4:]
    os.close(lock._file)


def test_the_plan_stands_first_in_the_log(jobs):
    """Parameters, budget, decision and the plan line, before the launcher has a word."""
    entry = jobs().entry
    heading, *lines = client.log_lines(entry)
    assert "== launcher ==" == heading
    planned = Plan.from_json(read_json(entry.run.plan)).describe()
    assert planned == lines[: len(planned)]
    assert ["parameters", "budget", "decision", "plan"] == [line.partition(":")[0] for line in lines[:4]]


# Stop


def test_a_job_is_asked_to_stop_and_stops(jobs):
    """A launcher that answers is not touched; its job is cancelled."""
    entry = jobs().entry
    process = launcher_of(entry)
    assert Status.CANCELLED is client.stop(entry, patience=30).status
    assert [("stop", "seen")] == Watcher(entry).refresh().controls
    process.wait(timeout=10)


def test_a_launcher_that_does_not_answer_is_made_to_end(jobs):
    """SIGTERM after the request, SIGKILL after that: a job that somebody stopped is cancelled, not lost."""
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + DEAF
    entry = jobs(deaf).entry
    process = launcher_of(entry)
    view = client.stop(entry, patience=0.3)
    assert Status.CANCELLED is view.status
    assert view.failure is None
    assert dead(process)
    assert "cancelled" == read_json(entry.run.status)["status"]


def test_a_full_disk_does_not_keep_a_job_from_being_stopped(jobs):
    """A request that cannot be written is followed by the signal that needs no disk."""
    entry = jobs(DEAF).entry
    process = launcher_of(entry)
    entry.run.control.rmdir()
    assert client.stop(entry, patience=5).status.is_terminal
    assert dead(process)


def test_stopping_what_has_ended_changes_nothing(tmp_path):
    """A completed job stays completed, and no request is left in its folder."""
    entry = run_folder(tmp_path / "run", created_at=LONG_AGO)
    complete(entry)
    assert Status.COMPLETED is client.stop(entry).status
    assert [] == control.pending(entry.run)


# The job as JSON

FIELDS = {
    "id", "status", "base_model", "method", "hyperparameters", "dataset_id", "output_name", "gpu_requested",
    "resolved_parallelism", "current_step", "total_steps", "current_loss", "error", "created_at", "started_at",
    "completed_at", "duration_seconds",
}  # fmt: skip


def test_a_job_object_has_the_contracts_fields(tmp_path):
    """Every field of the contract and the name, ready for JSON, of a job that is done and of one that never ran."""
    done = run_folder(tmp_path / "done", "done", created_at=LONG_AGO, max_steps=2)
    complete(done)
    found = json.loads(json.dumps(job_object(done)))
    assert {*FIELDS, "name"} == set(found)
    assert {
        "status": "completed",
        "base_model": "owner/model",
        "method": "sft_text",
        "hyperparameters": {"lora_rank": 4, "max_steps": 2},
        "dataset_id": "/rows.jsonl",
        "gpu_requested": {"type": "CPU", "count": 2},
        "current_step": 2,
        "total_steps": 2,
        "current_loss": 2.0,
        "error": None,
    }.items() <= found.items()
    assert found["duration_seconds"] >= 0
    lost = job_object(run_folder(tmp_path / "lost", "lost", created_at=LONG_AGO))
    assert {*FIELDS, "name"} == set(lost)
    assert ("failed", None, None, "launcher_lost") == (
        lost["status"],
        lost["started_at"],
        lost["duration_seconds"],
        lost["error"]["code"],
    )
