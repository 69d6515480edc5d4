"""The peak of a training step: how many bytes one rank holds at its worst moment, by phase and by term.

Nothing here is fitted to measurements. What a decoder layer keeps and what its backward pass holds is derived with a
symbolic tape (``memory/tape.py``) from the layer as transformers writes it (``memory/decoder.py``); the rest is the
order of events of FSDP2, DDP and TRL's loss. It was checked against torch's memory tracker: the measurements are in
tests/data/tracker.jsonl, and scripts/track_memory.py makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kernel_launcher.planner.memory.phases import Phase, phases
from kernel_launcher.planner.memory.units import Units
from kernel_launcher.planner.shape import Unknown

if TYPE_CHECKING:
    from kernel_launcher.planner.memory.phases import PhaseName, Term
    from kernel_launcher.planner.shape import ModelShape
    from kernel_launcher.planner.workload import Workload


@dataclass(frozen=True, slots=True)
class Peak:
    """What one rank holds, in bytes of tensors.

    Attributes:
        phases: The moments of a step that can be the worst.
        worst: The one that is.
    """

    phases: tuple[Phase, ...]
    worst: Phase

    @property
    def tensor_bytes(self) -> float:
        """Bytes of tensors at the worst moment: torch's ``max_memory_allocated``."""
        return self.worst.total

    @property
    def term(self) -> Term:
        """What takes most at the worst moment."""
        return max(self.worst.terms, key=lambda term: self.worst.terms[term])

    @property
    def by_phase(self) -> dict[PhaseName, float]:
        """The most of each phase."""
        totals: dict[PhaseName, float] = {}
        for phase in self.phases:
            totals[phase.name] = max(totals.get(phase.name, 0.0), phase.total)
        return totals


@lru_cache(maxsize=512)  # 53 peaks of 34 workloads are asked for with one move of a slider, 0.1 ms each
def peak(workload: Workload, shape: ModelShape | Unknown) -> Peak | Unknown:
    """The peak of one rank; unknown for a model whose shape is."""
    if isinstance(shape, Unknown):
        return shape
    found = tuple(phases(workload, shape))
    return Peak(found, max(found, key=lambda phase: phase.total))


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Host memory of rank 0, in bytes.

    Attributes:
        loading: The whole model, which it reads for all ranks; one rank alone reads straight to its GPU.
        offloaded: Weights, gradients and moments that stay in host memory.
    """

    loading: float
    offloaded: float


def host_memory(workload: Workload, shape: ModelShape) -> HostMemory:
    """What rank 0 takes of its host beside the process itself; the others, what stays there."""
    units = Units(workload, shape)
    whole = float(shape.params * workload.base.stored)
    offloaded = units.weights + units.gradients + units.optimizer
    return HostMemory(
        loading=whole if workload.world_size > 1 else 0.0, offloaded=offloaded if workload.cpu_offload else 0.0
    )
