"""What is measured: one rank's part of a training step, as a JSON object has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a model is trained.

    Attributes:
        micro_batch_size: Rows of a micro-batch; for DPO, pairs.
        seq_length: Tokens of a row.
        world_size: Number of ranks.
        zero_stage: 0 is a rank that keeps everything; 2 and 3 are FSDP2 without and with resharding after forward.
        precision: ``bf16``, ``bf16_mixed`` or ``fp32``.
        gradient_checkpointing: Of each layer, non-reentrant.
        optimizer: Which AdamW: ``foreach`` or ``fused``.
        method: ``sft`` or ``dpo``.
        lora: ``rank``, and maybe ``targets`` and ``dropout``; None trains all weights.
        loss: Of full logits (``hf``), or TRL's ``fused`` head.
        mask: Whether attention gets a mask.
        units: How FSDP2 wraps what is outside of the layers: in one ``root`` unit, or as ``accelerate`` does.
        accumulation: ``none`` for one micro-batch a step; else two, with gradients ``reduced`` each time, or last.
    """

    micro_batch_size: int = 1
    seq_length: int = 1024
    world_size: int = 4
    zero_stage: Literal[0, 2, 3] = 3
    precision: Literal["bf16", "bf16_mixed", "fp32"] = "bf16"
    gradient_checkpointing: bool = True
    optimizer: Literal["foreach", "fused"] = "foreach"
    method: Literal["sft", "dpo"] = "sft"
    lora: dict[str, Any] | None = None
    loss: Literal["hf", "fused"] = "hf"
    mask: bool = True
    units: Literal["root", "accelerate"] = "root"
    accumulation: Literal["none", "reduced", "unreduced"] = "none"

    @property
    def micro_batches(self) -> tuple[bool, ...]:
        """For each micro-batch of a step, whether its gradients are reduced over the ranks."""
        return {"none": (True,), "reduced": (True, True), "unreduced": (False, True)}[self.accumulation]

    @property
    def rows(self) -> int:
        """Rows of a forward pass: TRL puts chosen and rejected answers into one batch."""
        return self.micro_batch_size * (2 if self.method == "dpo" else 1)
