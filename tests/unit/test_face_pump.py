"""The drawing thread: current, quiet, bounded."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.protocol.fold import JobView
from kernel_launcher.protocol.states import Status
from veri_jupyter.monitor.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Watcher:
    """Stands in for the client's: a job that is as it is told to be."""

    def __init__(self, job_id: str) -> None:
        self.entry: Any = SimpleNamespace(id=job_id)
        self.view = JobView(status=Status.RUNNING)
        self.error: Exception | None = None

    def refresh(self) -> JobView:
        if self.error:
            raise self.error
        return self.view


class Drawn(list[tuple[str, str]]):
    """What was drawn: job and status."""

    def __call__(self, entry: Any, view: JobView) -> None:
        self.append((entry.id, str(view.status)))


@pytest.fixture
def drawn() -> Drawn:
    return Drawn()


@pytest.fixture
def pump(drawn: Drawn) -> Iterator[Pump]:
    made = Pump(drawn, seconds=0.01)
    yield made
    made.close()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "veri-pump"]


def test_one_thread_draws_all_jobs_and_ends_with_them(pump: Pump, drawn: Drawn) -> None:
    """A thread is there while a job is watched; each end is drawn once."""
    first, second = Watcher("first"), Watcher("second")
    pump.watch(first)  # type: ignore[arg-type]
    pump.watch(second)  # type: ignore[arg-type]
    until(lambda: {("first", "running"), ("second", "running")} <= set(drawn))
    assert 1 == len(threads())
    first.view.status = second.view.status = Status.COMPLETED
    until(lambda: not threads())
    assert 1 == drawn.count(("first", "completed"))
    assert 1 == drawn.count(("second", "completed"))


def test_a_job_that_cannot_be_drawn_is_dropped(
    pump: Pump, drawn: Drawn, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """One bad job does not end the others, and nothing is printed from the thread."""
    bad, good = Watcher("bad"), Watcher("good")
    bad.error = RuntimeError("no such file")
    pump.watch(bad)  # type: ignore[arg-type]
    pump.watch(good)  # type: ignore[arg-type]
    until(lambda: 3 < drawn.count(("good", "running")))
    assert ["the summary of bad is no longer kept current"] == [record.message for record in caplog.records]
    assert ("", "") == capfd.readouterr()


def test_settle_returns_when_the_end_is_drawn(pump: Pump, drawn: Drawn) -> None:
    """Whoever waited for a job finds its end on screen."""
    watcher = Watcher("first")
    pump.watch(watcher)  # type: ignore[arg-type]
    watcher.view.status = Status.FAILED
    pump.settle("first")
    assert ("first", "failed") == drawn[-1]
    pump.settle("somebody else's")


def test_a_closed_pump_draws_nothing_and_can_be_used_again(pump: Pump, drawn: Drawn) -> None:
    """Unload and load again."""
    pump.watch(Watcher("first"))  # type: ignore[arg-type]
    pump.close()
    assert [] == threads()
    before = len(drawn)
    pump.watch(Watcher("second"))  # type: ignore[arg-type]
    until(lambda: len(drawn) > before)
    assert {"second"} == {job for job, _ in drawn[before:]}


def test_a_job_that_is_shown_again_is_drawn_to_its_end(pump: Pump, drawn: Drawn) -> None:
    """The later watcher takes over; the end of the earlier one does not take it away."""
    earlier, later = Watcher("first"), Watcher("first")
    pump.watch(earlier)  # type: ignore[arg-type]
    pump.watch(later)  # type: ignore[arg-type]
    earlier.view.status = Status.COMPLETED
    before = len(drawn)
    until(lambda: len(drawn) > before + 3)
    later.view.status = Status.COMPLETED
    pump.settle("first")
    assert ("first", "completed") == drawn[-1]
