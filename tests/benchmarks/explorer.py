"""Milliseconds from a change in the explorer to all that is sent to the page, and the bytes of it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import comm
from comm.base_comm import BaseComm

from tests.benchmarks.figures import line
from tests.unit.explorer_toys import QWEN, Pump

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHANGES = 200


def run(_: Path, __: int) -> Iterator[str]:
    """Move the length as a slider does, to values that were not planned before."""
    sent: list[int] = []

    class Comm(BaseComm):
        def publish_msg(self, _: str, data: Any = None, __: Any = None, ___: Any = None, **____: Any) -> None:
            sent.append(len(json.dumps(data, default=str)))

    comm.create_comm = Comm
    from veri_jupyter.explorer.live import Live

    live = Live(QWEN, {}, Pump(), lambda _: None)  # type: ignore[arg-type]
    control = live._form._fields["method.max_seq_length"]._control
    times, busy, sizes = [], [], []
    for length in range(512, 512 + 24 * CHANGES, 24):
        sent.clear()
        start, start_busy = time.perf_counter(), time.process_time()
        control.value = str(length)
        times.append(1000 * (time.perf_counter() - start))
        busy.append(1000 * (time.process_time() - start_busy))
        sizes.append(sum(sent) / 1000)
    yield line("kernel CPU of a change of the explorer", busy, "ms", "< 10")
    times.sort()
    yield line("a change of the explorer, 95th percentile", [times[CHANGES * 95 // 100]], "ms", "<= 30")
    yield line("bytes of a change", sizes, "KB", "<= 10")
