"""What torch's tracker measured of a job, where the memory model was not asked or does not know the layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernel_launcher.planner.memory.phases import Phase
from kernel_launcher.planner.peak import Peak

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_launcher.planner.memory.phases import PhaseName


@dataclass(frozen=True, slots=True)
class Traced:
    """The most bytes of tensors in each phase of a step.

    Attributes:
        phases: Bytes by phase.
        layers: How many layers the measured models had; memory is linear in them.
        of: How many the model has.
    """

    phases: Mapping[PhaseName, int]
    layers: tuple[int, ...]
    of: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Traced:
        """What ``dataclasses.asdict`` or the tracker gave."""
        return cls(dict(value["phases"]), tuple(value["layers"]), value["of"])

    @property
    def peak(self) -> Peak:
        """The same as a peak; of its terms, only the sum is known."""
        found = tuple(Phase(name, {"measured": size}) for name, size in self.phases.items())
        return Peak(found, max(found, key=lambda phase: phase.total))

    def __str__(self) -> str:
        measured = " and ".join(map(str, self.layers))
        how = f"{measured} of {self.of} layers, kernels of the CPU, nothing added in place"
        return f"measured with torch's tracker ({how})"
