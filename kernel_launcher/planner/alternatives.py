"""Other ways to run the same job: stage, micro-batch and recomputation, with peak, verdict and traffic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernel_launcher.planner.memory.units import Units
from kernel_launcher.planner.peak import Peak, peak
from kernel_launcher.planner.shape import Unknown
from kernel_launcher.planner.verdict import UNCALIBRATED, Fit, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernel_launcher.planner.shape import ModelShape
    from kernel_launcher.planner.verdict import Overhead
    from kernel_launcher.planner.workload import Stage, Workload

LARGEST_MICRO_BATCH = 64
_ORDER = list(Fit)


@dataclass(frozen=True, slots=True, repr=False)
class Alternative:
    """One way to run a job.

    Attributes:
        workload: What would run.
        peak: Its peak.
        verdict: Whether that fits.
        traffic_bytes: What a rank sends in one optimizer step.
    """

    workload: Workload
    peak: Peak | Unknown
    verdict: Verdict
    traffic_bytes: float

    def __repr__(self) -> str:
        work = self.workload
        recompute = "on" if work.recompute else "off"
        return (
            f"<zero_stage={work.zero_stage} mbs={work.micro_batch_size} gradient_checkpointing={recompute}: "
            f"{self.verdict}; {self.traffic_bytes / 1e9:.1f} GB sent a step>"
        )


def alternatives(
    workload: Workload,
    shape: ModelShape | Unknown,
    limit_bytes: float,
    overhead: Overhead = UNCALIBRATED,
    *,
    stages: Iterable[Stage] | None = None,
) -> list[Alternative]:
    """Every stage, micro-batch and recomputation for the same optimizer batch, best first.

    Best is what fits, then what computes least, then what sends least, then the largest micro-batch.

    Args:
        workload: The job as planned; its global batch stays.
        shape: The model.
        limit_bytes: What the driver shows of a GPU.
        overhead: See ``Overhead``.
        stages: Which stages to look at; all that the job allows if None.
    """
    found = []
    for stage in stages if stages is not None else _stages(workload):
        for micro_batch, steps in _splits(workload):
            for recompute in (False, True):
                way = replace(
                    workload,
                    zero_stage=stage,
                    micro_batch_size=micro_batch,
                    accumulation_steps=steps,
                    recompute=recompute,
                )
                high = peak(way, shape)
                verdict = judge(high, limit_bytes, way.world_size, overhead)
                found.append(Alternative(way, high, verdict, traffic(way, shape)))
    return sorted(found, key=_badness)


def largest_micro_batch(
    workload: Workload, shape: ModelShape | Unknown, limit_bytes: float, overhead: Overhead = UNCALIBRATED
) -> int | None:
    """The largest micro-batch, up to 64, whose verdict is "fits" and that divides the rows of a rank's step."""
    for micro_batch, steps in sorted(_splits(workload), reverse=True):
        way = replace(workload, micro_batch_size=micro_batch, accumulation_steps=steps)
        if judge(peak(way, shape), limit_bytes, way.world_size, overhead).fit is Fit.FITS:
            return micro_batch
    return None


def traffic(workload: Workload, shape: ModelShape | Unknown) -> float:
    """Bytes that one rank sends in an optimizer step, with ring collectives."""
    if isinstance(shape, Unknown) or workload.world_size == 1:
        return 0.0
    w, u = workload, Units(workload, shape)
    ring = (w.world_size - 1) / w.world_size
    if not w.sharded:
        return 2 * ring * u.gradients
    layers, outside = shape.layers * u.layer_gathered, u.outside_gathered(shape.root_params)
    gathers = (2 if w.zero_stage == 3 else 1) * layers + outside
    if w.method == "dpo":
        gathers += layers + outside if w.lora is None else layers if w.zero_stage == 3 else 0
    reduces = u.trained * u.formats.reduced * (w.accumulation_steps if w.sync_each_batch else 1)
    return ring * (w.accumulation_steps * gathers + reduces)


def _stages(workload: Workload) -> tuple[Stage, ...]:
    if workload.world_size == 1 or (workload.lora is not None and workload.lora.four_bit):
        return (0,)
    return (2, 3) if workload.cpu_offload else (0, 2, 3)


def _splits(workload: Workload) -> list[tuple[int, int]]:
    """Ways to cut a rank's rows of one step into micro-batches."""
    rows = workload.micro_batch_size * workload.accumulation_steps
    return [(size, rows // size) for size in range(1, min(rows, LARGEST_MICRO_BATCH) + 1) if rows % size == 0]


def _badness(way: Alternative) -> tuple[int, bool, float, int]:
    return (
        _ORDER.index(way.verdict.fit),
        way.workload.recompute,
        way.traffic_bytes,
        -way.workload.micro_batch_size,
    )
