"""Moments of jobs that only exist in memory, for tests of pictures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernel_launcher.protocol.fold import JobView
from kernel_launcher.protocol.summary import Summary
from tests.unit.test_summary import ENTRY, NOW, event, status
from veri_jupyter.monitor.moment import Moment, Planned

GB = 10**9
PLANNED = Planned(
    method="sft_text", ranks=4, peak_bytes=17 * GB, band_bytes=GB, limit_bytes=22 * GB, phase="end of backward"
)


def step(number: int, total: int = 100, **metrics: float | None) -> dict[str, Any]:
    shown = {"loss": 3.0 - number / total, "tokens_per_second": 410.0, "learning_rate": 2e-4, "grad_norm": 0.8}
    return event("step", rank=0, step=number, total_steps=total, metrics=shown | metrics)


def beat(rank: int, now: int, most: int) -> dict[str, Any]:
    return event("heartbeat", rank=rank, step=2, phase="train", memory_bytes=now, peak_memory_bytes=most)


def moment(*events: dict[str, Any], planned: Planned = PLANNED, name: str = "first", **more: Any) -> Moment:
    """A running job after these events."""
    entry = replace(ENTRY, name=name, id=f"{name}-20250101-101010-ab12")
    view = JobView(created_at=entry.created_at).apply_all([status("running"), *events])
    return Moment(entry=entry, view=view, summary=Summary.of(entry, view, NOW), planned=planned, **more)
