"""What is checked: one row a training run of a few steps, with random weights and random tokens."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

Group = Literal["alone", "eight", "together"]
# One process; one process that is rank 0 of eight, whose others do not exist; all GPUs of this machine.
GROUPS: tuple[Group, ...] = ("alone", "eight", "together")
EIGHT = 8
LORA_RANK = 16
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# Qwen3-0.6B and -4B, with fewer layers where memory is small.
_COMMON = {"model_type": "qwen3", "head_dim": 128, "num_key_value_heads": 8, "vocab_size": 151_936}
MODELS: dict[Group, dict[str, Any]] = {
    "alone": _COMMON | {"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16, "layers": 28},
    "eight": _COMMON | {"hidden_size": 2560, "intermediate_size": 9728, "num_attention_heads": 32, "layers": 36},
}
MODELS["together"] = MODELS["alone"]
TINY: dict[str, Any] = {
    "model_type": "qwen3", "head_dim": 16, "num_key_value_heads": 2, "vocab_size": 2048, "hidden_size": 128,
    "intermediate_size": 384, "num_attention_heads": 8, "layers": 3,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run.

    Attributes:
        group: Who takes part.
        precision: As in a job's spec.
        stage: As in a job's spec.
        lora: Whether an adapter is trained.
        offload: Whether sharded states are parked in host memory.
        recompute: Activation checkpointing.
        liger: Whether Liger's kernels are used.
        nearest: Whether bf16 weights are rounded to nearest, as torch's AdamW does, for comparison.
        micro_batch: Rows of a micro-batch.
        needs: Packages without which it cannot run.
        gpu: Whether it is for a GPU only.
    """

    group: Group
    precision: Literal["bf16", "bf16_mixed", "fp32"] = "bf16"
    stage: Literal[0, 2, 3] = 0
    lora: bool = False
    offload: bool = False
    recompute: bool = True
    liger: bool = False
    nearest: bool = False
    micro_batch: int = 1
    needs: tuple[str, ...] = ()
    gpu: bool = False

    @property
    def name(self) -> str:
        """How the table calls it."""
        extras = {
            "LoRA": self.lora,
            "cpu_offload": self.offload,
            "no recompute": not self.recompute,
            "Liger": self.liger,
            "torch's AdamW": self.nearest,
            f"micro batch {self.micro_batch}": self.micro_batch > 1,
        }
        return ", ".join(
            [f"stage {self.stage}", self.precision, *(extra for extra, is_on in extras.items() if is_on)]
        )

    @property
    def method(self) -> Any:
        """The hyperparameters that sharding and number formats hang on."""
        return SimpleNamespace(
            zero_stage=self.stage,
            precision=self.precision,
            lora_rank=LORA_RANK if self.lora else None,
            cpu_offload=self.offload,
        )


ROWS = (
    Row(group="alone", precision="fp32"),
    Row(group="alone", precision="bf16_mixed"),
    Row(group="alone"),
    Row(group="alone", nearest=True),
    Row(group="alone", micro_batch=4),
    Row(group="alone", recompute=False),
    Row(group="alone", lora=True, needs=("peft",)),
    Row(group="alone", liger=True, needs=("liger_kernel", "trl"), gpu=True),
    Row(group="eight", stage=3),
    Row(group="eight", stage=2),
    Row(group="eight", stage=3, precision="bf16_mixed"),
    Row(group="eight", stage=2, precision="bf16_mixed"),
    Row(group="eight", stage=3, precision="fp32"),
    Row(group="eight", stage=3, recompute=False),
    Row(group="eight", stage=3, lora=True, needs=("peft",)),
    Row(group="eight", stage=3, offload=True, gpu=True),
    Row(group="together", precision="bf16_mixed"),
    Row(group="together", stage=2, precision="bf16_mixed"),
    Row(group="together", stage=3, precision="bf16_mixed"),
    Row(group="together", stage=3),
    Row(group="together", stage=3, micro_batch=4),
    Row(group="together", stage=3, offload=True, gpu=True),
)
