"""The reporter: what it writes, and that it never makes the training thread wait."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.protocol.events import EventWriter
from kernel_launcher.worker.memory import Memory, host_memory
from kernel_launcher.worker.reporter import Reporter

if TYPE_CHECKING:
    from pathlib import Path


class StuckDisk:
    """A writer that hangs, after the first two events, until it is let go."""

    dropped = 0

    def __init__(self) -> None:
        self.written: list[str] = []
        self.free = threading.Event()

    def write(self, kind: str, **_: Any) -> None:
        if len(self.written) >= 2:
            self.free.wait(30)
        self.written.append(kind)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_first_two_events_are_on_disk_before_anything_else_happens(path: Path) -> None:
    """Who wants to know whether the rank lives need not wait for torch."""
    reporter = Reporter(EventWriter(path, "rank", rank=3))
    first, second = read(path)[:2]
    assert ("process", 3) == (first["kind"], first["rank"])
    assert ("phase", "import") == (second["kind"], second["phase"])
    reporter.close()


def test_events_come_in_order_and_end_with_a_heartbeat(path: Path) -> None:
    """What was put before the end is written before the end, with the memory at the end."""
    reporter = Reporter(EventWriter(path, "rank", rank=0))
    reporter.memory = lambda: Memory(5, 7)
    reporter.enter("train")
    reporter.report_step(1, 2, {"loss": 2.5})
    reporter.warn("look out")
    reporter.close()
    events = read(path)[2:]
    assert ["phase", "step", "warning", "heartbeat"] == [event["kind"] for event in events]
    assert {"loss": 2.5} == events[1]["metrics"]
    beat = events[-1]
    assert (1, "train", 5, 7) == tuple(beat[k] for k in ("step", "phase", "memory_bytes", "peak_memory_bytes"))


def test_lines_go_to_the_log_and_not_to_the_events(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are for people."""
    reporter = Reporter(EventWriter(path, "rank", rank=0))
    reporter.say("step 1/2")
    reporter.close()
    assert "step 1/2\n" == capsys.readouterr().out
    assert ["process", "phase", "heartbeat"] == [event["kind"] for event in read(path)]


def test_a_full_queue_drops_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """A disk that hangs does not stop the training; how much was lost is known."""
    disk = StuckDisk()
    reporter = Reporter(disk, queue_events=4)  # type: ignore[arg-type]
    for step in range(100):
        reporter.report_step(step, 100, {})
    assert 95 <= reporter.dropped <= 96  # one may be in the writer's hand
    disk.free.set()
    reporter.close()
    assert 4 <= disk.written.count("step") <= 5


def test_a_gpu_that_does_not_answer_ends_no_heartbeat(path: Path) -> None:
    """After a CUDA error nothing about the GPU can be asked, and the rank has yet to report."""
    reporter = Reporter(EventWriter(path, "rank", rank=0))

    def broken() -> Memory:
        raise RuntimeError("CUDA error: device-side assert triggered")

    reporter.memory = broken
    reporter.close()
    assert "heartbeat" == read(path)[-1]["kind"]


def test_memory_of_the_host_is_in_bytes() -> None:
    """A Python process with pytest holds between 10 MB and 100 GB."""
    held = host_memory()
    assert 10e6 < held.now < 100e9
    assert 10e6 < held.peak < 100e9
