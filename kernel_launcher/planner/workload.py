"""What a peak depends on beside the model: how it is trained, on how many GPUs, in which formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernel_launcher.planner.memory.arithmetic import BF16, FP32, Adapter, Arithmetic

Stage = Literal[0, 2, 3]
Optimizer = Literal["fused", "foreach", "stochastic"]
# The optimizer that rounds bf16 weights by chance takes them chunk by chunk: so many elements at most, by device, and
# so many bytes for each (four in fp32, a place, and two of its hash).
STOCHASTIC_CHUNK = {"cpu": 1 << 18, "cuda": 1 << 21}
STOCHASTIC_BYTES = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """A LoRA adapter; ``four_bit`` is QLoRA, whose frozen linear weights are packed."""

    rank: int
    targets: tuple[str, ...]
    dropout: float = 0.0
    four_bit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One rank's part of a training step.

    Attributes:
        zero_stage: 0 is DDP; 2 and 3 are FSDP2 without and with resharding after forward.
        world_size: Number of GPUs.
        micro_batch_size: Rows of a micro-batch; for DPO, pairs.
        length: Tokens of a row, padding included.
        precision: As in the job's spec.
        recompute: Activation checkpointing of each layer, non-reentrant.
        method: ``sft_text`` or ``dpo``.
        lora: The adapter; None trains all weights.
        optimizer: Which AdamW: transformers takes the fused one, and for weights in bf16 alone there is ours.
        loss: TRL's fused head (1.16: always, with Liger's kernels, too), or full logits.
        mask: Whether attention gets a mask: it does where the rows of a micro-batch differ in length and are padded,
            and always where rows share a sequence.
        accumulation_steps: Micro-batches a step.
        sync_each_batch: Whether FSDP2 reduces the gradients of each micro-batch, as our runs do. If not, whole
            gradients are kept in between.
        cpu_offload: Weights, gradients and optimizer states live in host memory (FSDP2).
        units: How FSDP2 wraps what is outside of the layers: as accelerate 1.15 does, or in one root unit.
        device: Whose kernels run.
        tracked: As torch's memory tracker sees a run: nothing is added in place and DDP is not wrapped around.
    """

    zero_stage: Stage
    world_size: int
    micro_batch_size: int
    length: int
    precision: Literal["bf16", "bf16_mixed", "fp32"] = "bf16"
    recompute: bool = True
    method: Literal["sft_text", "dpo"] = "sft_text"
    lora: Lora | None = None
    optimizer: Optimizer = "fused"
    loss: Literal["fused", "logits"] = "fused"
    mask: Literal["padded", "always", "never"] = "padded"
    accumulation_steps: int = 1
    sync_each_batch: bool = False
    cpu_offload: bool = False
    units: Literal["accelerate", "root"] = "accelerate"
    device: Literal["cuda", "cpu"] = "cuda"
    tracked: bool = False

    @property
    def sharded(self) -> bool:
        return self.zero_stage != 0

    @property
    def shards(self) -> int:
        """Over how many ranks weights, gradients and optimizer states are spread."""
        return self.world_size if self.sharded else 1

    @property
    def rows(self) -> int:
        """Rows that a forward pass sees: TRL puts chosen and rejected answers into one batch."""
        return self.micro_batch_size * (2 if self.method == "dpo" else 1)

    @property
    def masks(self) -> bool:
        """Whether attention gets a mask."""
        return self.mask == "always" or (self.mask == "padded" and self.rows > 1)

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch (T)."""
        return self.rows * self.length

    @property
    def autocast(self) -> bool:
        """Mixed precision is autocast under DDP; FSDP2 gathers weights in bf16 instead."""
        return self.precision == "bf16_mixed" and not self.sharded

    @property
    def base(self) -> Formats:
        """Formats of the base weights, frozen or trained."""
        if self.lora is not None:
            return _FP32 if self.precision == "fp32" else _BF16
        return self._trained_formats

    @property
    def adapter(self) -> Formats:
        """Formats of the adapter's weights: PEFT makes them fp32; TRL casts those of a 4-bit base to bf16."""
        if self.lora is not None and self.lora.four_bit:
            return _BF16
        if self.precision == "bf16_mixed" and self.sharded:
            return _MIXED
        return _FP32

    @property
    def _trained_formats(self) -> Formats:
        if self.precision == "bf16":
            return _BF16
        return _MIXED if self.precision == "bf16_mixed" and self.sharded else _FP32

    @property
    def arithmetic(self) -> Arithmetic:
        """What a layer needs to know of all this."""
        adapter = None
        if self.lora is not None:
            adapter = Adapter(self.lora.rank, self.lora.targets, self.lora.dropout > 0, self.adapter.computed)
        weights = self.base.computed
        return Arithmetic(
            weights=weights,
            residual=weights,
            autocast=self.autocast,
            adapter=adapter,
            four_bit=self.lora is not None and self.lora.four_bit,
            device=self.device,
            adds_in_place=not self.tracked,
        )


@dataclass(frozen=True, slots=True)
class Formats:
    """Bytes per parameter (derived; torch's tracker agrees).

    Attributes:
        stored: The weight that the optimizer updates (p).
        gradient: Its gradient (g).
        moments: AdamW's two moments, in the weight's format (o).
        computed: The weight and its gradient as forward and backward see them (c): under FSDP2, gathered.
        reduced: What gradients travel in (r).
    """

    stored: int
    gradient: int
    moments: int
    computed: int
    reduced: int


_BF16 = Formats(BF16, BF16, 2 * BF16, BF16, BF16)
_FP32 = Formats(FP32, FP32, 2 * FP32, FP32, FP32)
# FSDP2's policy: parameters gathered in bf16, gradients reduced in fp32.
_MIXED = Formats(FP32, FP32, 2 * FP32, BF16, FP32)
