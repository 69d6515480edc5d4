"""What the planner is told about the machine and the model; ``facts`` finds it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CPU = "CPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What ranks can run on.

    Attributes:
        gpu_type: Name of the GPUs as the driver gives it, or ``CPU`` (ranks on gloo).
        gpu_memory_bytes: Memory of each GPU, smallest first; empty for ``CPU``.
        cores: Processor cores that this process may use.
        host_memory_bytes: Host memory that this process may use.
    """

    gpu_type: str
    gpu_memory_bytes: tuple[int, ...] = ()
    cores: int
    host_memory_bytes: int

    @property
    def is_cpu(self) -> bool:
        return self.gpu_type == CPU

    @property
    def slots(self) -> int:
        """How many ranks fit: one a GPU, or one a core where there is no GPU."""
        return self.cores if self.is_cpu else len(self.gpu_memory_bytes)

    def memory_per_rank(self, ranks: int) -> int:
        """Bytes that one rank may hold: its GPU's memory, or its part of 70 % of host memory."""
        return int(0.7 * self.host_memory_bytes) // ranks if self.is_cpu else min(self.gpu_memory_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of a base model.

    Attributes:
        param_count: Parameters as stored on disk (a tied embedding stored twice counts twice); None if unknown.
        source: Where the count is from.
        max_length: Longest sequence that the model was made for, in tokens; None if unknown.
        linears: For each linear layer's short name (``q_proj``), the sum of inputs plus outputs over all layers.
    """

    param_count: int | None = None
    source: str = "unknown"
    max_length: int | None = None
    linears: Mapping[str, int] = field(default_factory=dict)

    def lora_param_count(self, rank: int, targets: Iterable[str]) -> int:
        """Parameters of a LoRA adapter: rank x (inputs + outputs) for each targeted layer."""
        return rank * sum(self.linears.get(name, 0) for name in targets)
