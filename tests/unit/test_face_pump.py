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


class Picture(list[str]):
    """What was drawn: the status each time, and ``closed``."""

    error: Exception | None = None
    told: str = ""

    def fail(self, entry: Any, error: Exception) -> None:
        self.told = f"{entry.id}: {error}"

    def draw(self, _: Any, view: JobView) -> None:
        if self.error:
            raise self.error
        self.append(str(view.status))

    def close(self) -> None:
        self.append("closed")


@pytest.fixture
def pump() -> Iterator[Pump]:
    made = Pump(seconds=0.01)
    yield made
    made.close()


def show(pump: Pump, watcher: Watcher, place: str | None = None) -> Picture:
    picture = Picture()
    pump.watch(watcher, {place or watcher.entry.id: picture})  # type: ignore[arg-type]
    return picture


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "veri-pump"]


def test_one_thread_draws_all_jobs_and_ends_with_them(pump: Pump) -> None:
    """A thread is there while a job is watched; each end is drawn once."""
    first, second = Watcher("first"), Watcher("second")
    pictures = show(pump, first), show(pump, second)
    until(lambda: all("running" in picture for picture in pictures))
    assert 1 == len(threads())
    first.view.status = second.view.status = Status.COMPLETED
    until(lambda: not threads())
    assert [1, 1] == [picture.count("completed") for picture in pictures]


def test_a_job_that_cannot_be_drawn_is_dropped(
    pump: Pump, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """One bad job does not end the others; its picture says why, and nothing is printed from the thread."""
    bad, good = Watcher("bad"), Watcher("good")
    bad.error = RuntimeError("no such file")
    dropped = show(pump, bad)
    picture = show(pump, good)
    until(lambda: 3 < picture.count("running"))
    assert ("bad: no such file", "") == (dropped.told, picture.told)
    assert ["bad is no longer kept current"] == [record.message for record in caplog.records]
    assert ("", "") == capfd.readouterr()


def test_a_picture_that_cannot_be_drawn_leaves_the_others(pump: Pump, caplog: pytest.LogCaptureFixture) -> None:
    """Two views of one job: what is wrong with one is not the other's."""
    watcher = Watcher("first")
    bad = show(pump, watcher, "bad")
    bad.error = RuntimeError("the widget is closed")
    good = show(pump, watcher, "good")
    until(lambda: 3 < good.count("running"))
    assert [] == bad
    assert ("first: the widget is closed", "") == (bad.told, good.told)
    assert 1 == len(caplog.records)


def test_what_was_shown_at_a_place_before_is_closed(pump: Pump) -> None:
    """Running a cell again closes its old view, also when it shows another job now."""
    before = show(pump, Watcher("first"), "cell")
    until(lambda: before)
    after = show(pump, Watcher("second"), "cell")
    until(lambda: after)
    assert "closed" == before[-1]
    until(lambda: not pump.watches("first"))
    assert "closed" not in after


def test_what_is_not_on_screen_any_more_is_closed(pump: Pump) -> None:
    """A cell that showed two jobs and now shows one."""
    before = [show(pump, Watcher(job), f"old {job}") for job in ("first", "second")]
    until(lambda: all(before))
    after = Picture()
    gone = lambda place: str(place).startswith("old")  # noqa: E731
    pump.watch(Watcher("third"), {"new": after}, gone)  # type: ignore[arg-type]
    until(lambda: after)
    assert ["closed", "closed"] == [picture[-1] for picture in before]


def test_actions_run_in_the_thread(pump: Pump, caplog: pytest.LogCaptureFixture) -> None:
    """Callbacks only enqueue: the pump acts, also when no job is watched, and whatever one of them does."""
    names: list[str] = []

    def fail() -> None:
        raise RuntimeError

    pump.post(fail)
    pump.post(lambda: names.append(threading.current_thread().name))
    until(lambda: names)
    assert ["veri-pump"] == names
    assert ["a click could not be followed"] == [record.message for record in caplog.records]
    until(lambda: not threads())


def test_what_went_wrong_in_a_click_is_told(pump: Pump) -> None:
    """Whoever posted it is told in the same thread, and may fail at that, too."""
    told: list[tuple[str, str]] = []

    def fail() -> None:
        raise RuntimeError("no")

    def tell(error: Exception) -> None:
        told.append((threading.current_thread().name, str(error)))
        raise error

    pump.post(fail, tell)
    pump.post(fail, tell)
    until(lambda: 2 == len(told))
    assert {("veri-pump", "no")} == set(told)


def test_a_click_is_followed_at_once() -> None:
    """Nor does the first picture wait for the next round."""
    slow = Pump(seconds=60)
    picture = show(slow, Watcher("first"))
    until(lambda: 1 == len(picture))
    slow.post(lambda: None)
    until(lambda: 2 == len(picture))
    slow.close()


def test_settle_returns_when_the_end_is_drawn(pump: Pump) -> None:
    """Whoever waited for a job finds its end on screen."""
    watcher = Watcher("first")
    picture = show(pump, watcher)
    watcher.view.status = Status.FAILED
    pump.settle("first")
    assert "failed" == picture[-1]
    pump.settle("somebody else's")


def test_a_closed_pump_draws_nothing_and_can_be_used_again(pump: Pump) -> None:
    """Unload and load again."""
    first = show(pump, Watcher("first"))
    pump.close()
    assert [] == threads()
    before = len(first)
    second = show(pump, Watcher("second"))
    until(lambda: second)
    assert before == len(first)


def test_a_job_that_is_shown_again_is_drawn_to_its_end(pump: Pump) -> None:
    """The later watcher takes over; the end of the earlier one does not take it away."""
    earlier, later = Watcher("first"), Watcher("first")
    show(pump, earlier)
    picture = show(pump, later)
    earlier.view.status = Status.COMPLETED
    until(lambda: len(picture) > 3)
    later.view.status = Status.COMPLETED
    pump.settle("first")
    assert "completed" == picture[-1]
