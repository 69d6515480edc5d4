"""What watching costs: attaching to a long job, and a kernel that shows it.

In processor time, to which a busy machine adds nothing. From an event to its point on a page is measured by
``tests/browser/test_dashboard.py::test_what_a_minute_costs``, which has a page.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kernel_launcher.launcher.client import Watcher
from tests.benchmarks.figures import line
from tests.kernel.fakes import FakeJob
from tests.kernel.kernels import Kernel, started
from veri_jupyter.monitor import static
from veri_jupyter.monitor.moment import Moment, Planned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEPS = 100_000
RANKS = 8
WINDOW = 10.0


def run(folder: Path, pairs: int) -> Iterator[str]:
    """A job of 100,000 steps on eight ranks: its text, its chart, and then a kernel that watches it."""
    job = FakeJob(folder / "watched", "watched")
    job.plan(peak=17 * 10**9, limit=22 * 10**9)
    job.status("running")
    for step in range(1, STEPS + 1):
        _step(job, step)
    view = job.look()
    start = time.process_time()
    from veri_jupyter.monitor.dashboard import Dashboard
    from veri_jupyter.monitor.figures import LiveChart

    LiveChart(Moment.of(job.entry, view, Planned.of(job.entry))).figure.close()
    first = time.process_time() - start
    texts, boards, charts = [], [], []
    for _ in range(pairs):
        start = time.process_time()
        view = Watcher(job.entry).refresh()
        static.bundle(Moment.of(job.entry, view, Planned.of(job.entry)))
        texts.append(time.process_time() - start)
        start = time.process_time()
        static.chart(Moment.of(job.entry, view, Planned.of(job.entry)))
        charts.append(time.process_time() - start)
        start = time.process_time()
        board = Dashboard(job.entry, lambda action: action())
        board.draw(job.entry, view)
        boards.append(time.process_time() - start)
        board.close()
    yield line(f"attaching to {STEPS:,} steps: the text", texts, "s", "<= 1")
    yield line("the picture of the static mode", charts, "s", "<= 0.1")
    yield line("the dashboard, once plotly is loaded", boards, "s", "<= 1")
    yield line("loading plotly, once a kernel", [first], "s", "none")
    with started(folder, JPY_SESSION_NAME=str(folder / "x.ipynb")) as kernel:
        shares = list(_watching(job, kernel, pairs))
    yield line(f"a kernel that watches {RANKS} ranks, of one core", shares, "%", "<= 2")


def _watching(job: FakeJob, kernel: Kernel, windows: int) -> Iterator[float]:
    """Percent of a core that the whole kernel takes, its messages included, a step and eight ranks a second."""
    kernel.run("%load_ext veri_jupyter")
    shown = kernel.run("%veri_attach watched").shown
    assert "application/vnd.jupyter.widget-view+json" in shown[0]
    kernel.hear(WINDOW)
    step = STEPS
    for _ in range(windows):
        begun, used = time.monotonic(), _used(kernel)
        while time.monotonic() - begun < WINDOW:
            step += 10
            _step(job, step)
            kernel.hear(1.0)
        yield 100 * (_used(kernel) - used) / (time.monotonic() - begun)


def _used(kernel: Kernel) -> float:
    return float(kernel.run("import time; print(time.process_time())").stdout)


def _step(job: FakeJob, step: int) -> None:
    metrics = {"learning_rate": 2e-4 * (1 - step / 2e5), "grad_norm": 0.8 + step % 7 / 9, "step_seconds": 0.4}
    job.step(step, 2 * STEPS, loss=2 + 1 / step + step % 13 / 50, tokens_per_second=12_000.0 + step % 99, **metrics)
    if step % 10 == 0:
        for rank in range(RANKS):
            used = 10**10 + step % 17 * 10**8
            job.report("heartbeat", rank, step=step, memory_bytes=used, peak_memory_bytes=used)
