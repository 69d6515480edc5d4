"""Seconds to read and fold the events of a run of 100,000 optimizer steps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kernel_launcher.protocol.events import EventReader, EventWriter
from kernel_launcher.protocol.fold import JobView
from kernel_launcher.protocol.paths import RunDir
from tests.benchmarks.figures import line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEPS = 100_000


def run(folder: Path, pairs: int) -> Iterator[str]:
    """Write the events as a rank would, then read and fold them several times."""
    run_dir = RunDir(folder / "fold")
    run_dir.create()
    rank = run_dir.rank(0)
    rank.root.mkdir(parents=True)
    writer = EventWriter(rank.events, "rank", rank=0)
    for step in range(1, STEPS + 1):
        metrics = {
            "loss": 2.0 + 1 / step,
            "learning_rate": 2e-4 * (1 - step / STEPS),
            "grad_norm": 0.8421,
            "tokens_per_second": 12_345.678,
            "step_seconds": 0.41234,
            "tokens": 5_120 * step,
            "epoch": step / 1000,
        }
        writer.write("step", step=step, total_steps=STEPS, metrics=metrics)
    times = []
    for _ in range(pairs):
        start = time.perf_counter()
        view = JobView().apply_all(EventReader(run_dir).stream())
        times.append(time.perf_counter() - start)
        assert STEPS == view.step
    yield line(f"reading and folding {STEPS:,} events", times, "s", "<= 1")
