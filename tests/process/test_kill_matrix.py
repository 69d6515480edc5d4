"""Real processes, killed for real: nothing is left behind, and the next look tells the truth."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from kernel_launcher.launcher import client
from kernel_launcher.protocol import control
from kernel_launcher.protocol.states import Status
from tests.process import jobs

if TYPE_CHECKING:
    from pathlib import Path

    import psutil

    from tests.conftest import Sample


VICTIMS = {
    "launcher": jobs.launcher,
    "rank": lambda entry: jobs.rank(entry, 1),
    "data worker": lambda entry: jobs.data_worker(entry, 1),
}
# What the next look must say; a data worker's death is told by its rank.
EXPECTED = {
    ("launcher", signal.SIGTERM): ("preempted", None),
    ("launcher", signal.SIGKILL): ("launcher_lost", None),
    ("rank", signal.SIGTERM): ("preempted", 1),
    ("rank", signal.SIGKILL): ("killed_externally", 1),
    ("data worker", signal.SIGTERM): ("killed_externally", 1),
    ("data worker", signal.SIGKILL): ("killed_externally", 1),
}


# Two of the six stand for the rest in the short run.
SHORT = {("launcher", signal.SIGKILL), ("rank", signal.SIGKILL)}
CASES = [pytest.param(*case, marks=() if case in SHORT else pytest.mark.matrix) for case in EXPECTED]


@pytest.mark.parametrize(("victim", "number"), CASES)
def test_a_killed_process_leaves_nothing_behind_and_an_honest_state(
    tmp_path: Path, sample: Sample, victim: str, number: signal.Signals
) -> None:
    """Within 60 s no process of the job is left, and the job says who died."""
    entry = jobs.start(
        tmp_path, sample.tiny, sample.sft, gpu_count=2, max_steps=jobs.ENDLESS, dataloader_num_workers=1
    )
    jobs.wait_until(entry, lambda view: view.step >= 1)
    process: psutil.Process = VICTIMS[victim](entry)
    process.send_signal(number)

    assert [] == jobs.left_after(entry, 60)
    view = client.Watcher(entry).refresh()
    assert Status.FAILED is view.status
    assert view.failure is not None
    assert EXPECTED[victim, number] == (view.failure.code, view.failure.rank)
    assert not entry.run.final.exists()


def test_a_stopped_job_is_cancelled_and_leaves_nothing_behind(tmp_path: Path, sample: Sample) -> None:
    """Stop ends launcher, ranks and data workers, and says cancelled, not failed."""
    entry = jobs.start(
        tmp_path, sample.tiny, sample.sft, gpu_count=2, max_steps=jobs.ENDLESS, dataloader_num_workers=1
    )
    jobs.wait_until(entry, lambda view: view.step >= 1)
    view = client.stop(entry)
    assert (Status.CANCELLED, None) == (view.status, view.failure)
    assert [("stop", "seen")] == view.controls
    assert [] == jobs.left_after(entry, 10)


@pytest.mark.matrix
def test_a_job_is_stopped_while_it_starts(tmp_path: Path, sample: Sample) -> None:
    """A stop while the launcher imports, starts its ranks, or has just done so, ends the job within its patience."""
    for delay in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5):
        entry = jobs.start(tmp_path, sample.tiny, sample.sft, gpu_count=1, max_steps=jobs.ENDLESS)
        time.sleep(delay)
        control.send(entry.run, "stop")
        view = client.follow(entry, lambda _: None, timeout=25)
        assert Status.CANCELLED is view.status, delay
        assert [] == jobs.left_after(entry, 10), delay


@pytest.mark.matrix
def test_a_launcher_that_does_not_answer_is_made_to_end(tmp_path: Path, sample: Sample) -> None:
    """A stopped (SIGSTOP) launcher answers no request; its ranks and itself are ended all the same."""
    entry = jobs.start(tmp_path, sample.tiny, sample.sft, gpu_count=1, max_steps=jobs.ENDLESS, grace_seconds=1)
    jobs.wait_until(entry, lambda view: view.step >= 1)
    jobs.launcher(entry).send_signal(signal.SIGSTOP)
    view = client.stop(entry, patience=2)
    assert Status.CANCELLED is view.status
    assert [] == jobs.left_after(entry, 10)


def test_everything_listens_on_the_loopback_address_only(tmp_path: Path, sample: Sample) -> None:
    """No socket of a running job accepts connections from another machine."""
    entry = jobs.start(tmp_path, sample.tiny, sample.sft, gpu_count=2, max_steps=jobs.ENDLESS)
    jobs.wait_until(entry, lambda view: view.step >= 1)
    listening = [
        connection.laddr.ip
        for process in jobs.processes(entry)
        for connection in process.net_connections(kind="tcp")
        if connection.status == "LISTEN"
    ]
    client.stop(entry, now=True)
    assert listening
    assert {"127.0.0.1", "::1", "::ffff:127.0.0.1"} >= set(listening)
