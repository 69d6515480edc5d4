"""What the planner is told about the machine and the model; ``facts`` finds it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kernel_launcher.planner.shape import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kernel_launcher.planner.shape import ModelShape

CPU = "CPU"
NO_CONFIG = Unknown("the model's config.json is not at hand")
HOST_SHARE = 0.7

Link = Literal["nvlink", "pcie"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What ranks can run on.

    Attributes:
        gpu_type: Name of the GPUs as the driver gives it, or ``CPU`` (ranks on gloo).
        gpu_memory_bytes: Memory of each GPU as it is sold, smallest first; empty for ``CPU``.
        visible_memory_bytes: Memory of each GPU as the driver shows it; empty where that is not known apart.
        bf16: Whether they compute in bfloat16.
        link: How they are joined; None if unknown.
        cores: Processor cores that this process may use.
        host_memory_bytes: Host memory that this process may use; None for a machine that is elsewhere.
    """

    gpu_type: str
    gpu_memory_bytes: tuple[int, ...] = ()
    visible_memory_bytes: tuple[int, ...] = ()
    bf16: bool = True
    link: Link | None = None
    cores: int
    host_memory_bytes: int | None

    @property
    def is_cpu(self) -> bool:
        return self.gpu_type == CPU

    @property
    def slots(self) -> int:
        """How many ranks fit: one a GPU, or one a core where there is no GPU."""
        return self.cores if self.is_cpu else len(self.gpu_memory_bytes)

    def memory_per_rank(self, ranks: int) -> int:
        """Bytes that one rank may hold: its GPU's memory as sold, or its part of 70 % of host memory."""
        return self._host_part(ranks) if self.is_cpu else min(self.gpu_memory_bytes)

    def visible_per_rank(self, ranks: int) -> int:
        """Bytes that one rank finds: as the driver shows its GPU, or its part of 70 % of host memory."""
        return self._host_part(ranks) if self.is_cpu else min(self.visible_memory_bytes or self.gpu_memory_bytes)

    def _host_part(self, ranks: int) -> int:
        assert self.host_memory_bytes is not None, "the processor is this machine's"
        return int(HOST_SHARE * self.host_memory_bytes) // ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of a base model.

    Attributes:
        param_count: Parameters as stored on disk (a tied embedding stored twice counts twice); None if unknown.
        source: Where the count is from.
        max_length: Longest sequence that the model was made for, in tokens; None if unknown.
        linears: For each linear layer's short name (``q_proj``), the sum of inputs plus outputs over all layers.
        shape: The decoder's shape, or why a memory estimate does not know it.
        tied: Whether the output layer is the embedding; None if unknown.
        quantized: How the stored weights are packed (``bitsandbytes, 4 bits``); empty for plain ones.
    """

    param_count: int | None = None
    source: str = "unknown"
    max_length: int | None = None
    linears: Mapping[str, int] = field(default_factory=dict)
    shape: ModelShape | Unknown = NO_CONFIG
    tied: bool | None = None
    quantized: str = ""

    @property
    def is_4bit(self) -> bool:
        """Whether the stored weights are packed to four bits, so that they cannot be sharded."""
        return "4 bits" in self.quantized

    def lora_param_count(self, rank: int, targets: Iterable[str]) -> int:
        """Parameters of a LoRA adapter: rank x (inputs + outputs) for each targeted layer."""
        return rank * sum(self.linears.get(name, 0) for name in targets)
