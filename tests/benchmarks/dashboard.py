"""What watching costs: attaching to a long job, an update, the kernel's processor time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kernel_launcher.launcher.client import Watcher
from tests.benchmarks.figures import line
from tests.kernel.fakes import FakeJob
from veri_jupyter.monitor import static
from veri_jupyter.monitor.dashboard import Dashboard
from veri_jupyter.monitor.moment import Moment, Planned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEPS = 100_000
RANKS = 8
UPDATES = 20


def run(folder: Path, pairs: int) -> Iterator[str]:
    """A job of 100,000 steps on eight ranks: its text, its chart, and then a second of watching."""
    job = FakeJob(folder / "watched", "watched")
    job.plan(peak=17 * 10**9, limit=22 * 10**9)
    job.status("running")
    for step in range(1, STEPS + 1):
        _step(job, step)
    texts, boards, charts, updates = [], [], [], []
    for place in range(pairs):
        start = time.perf_counter()
        watcher = Watcher(job.entry)
        view = watcher.refresh()
        static.bundle(Moment.of(job.entry, view, Planned.of(job.entry)))
        texts.append(time.perf_counter() - start)
        start = time.perf_counter()
        static.chart(Moment.of(job.entry, view, Planned.of(job.entry)))
        charts.append(time.perf_counter() - start)
        start = time.perf_counter()
        board = Dashboard(job.entry, lambda action: action())
        board.draw(job.entry, view)
        boards.append(time.perf_counter() - start)
        for number in range(UPDATES):
            _step(job, STEPS + place * UPDATES + number + 1)
            start = time.process_time()
            board.draw(job.entry, watcher.refresh())
            updates.append((time.process_time() - start) * 100)
        board.close()
    yield line(f"attaching to {STEPS:,} steps: the text", texts, "s", "<= 1")
    yield line("the picture of the static mode", charts, "s", "<= 0.1")
    yield line("the dashboard (the first one imports plotly)", boards, "s", "<= 1")
    yield line(f"watching {RANKS} ranks, an update a second, of one core", updates, "%", "<= 2")


def _step(job: FakeJob, step: int) -> None:
    metrics = {"learning_rate": 2e-4 * (1 - step / 2e5), "grad_norm": 0.8 + step % 7 / 9, "step_seconds": 0.4}
    job.step(step, 2 * STEPS, loss=2 + 1 / step + step % 13 / 50, tokens_per_second=12_000.0 + step % 99, **metrics)
    if step % 10 == 0:
        for rank in range(RANKS):
            used = 10**10 + step % 17 * 10**8
            job.report("heartbeat", rank, step=step, memory_bytes=used, peak_memory_bytes=used)
