"""The states that stay on the GPUs for the whole run, by the published rule: what decides ``zero_stage = "auto"``.

Bytes a parameter are weights, gradient and two Adam moments (Ultra-Scale Playbook, "memory for weights, gradients and
optimizer states"); for LoRA the frozen base alone. Activations are no part of it: they are the peak's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_launcher.planner.inputs import Hardware, ModelFacts
    from kernel_launcher.planner.workload import Stage
    from kernel_launcher.spec.fields import Method

RESERVE_BYTES = 2 * 2**30
BUDGET_SHARE = 0.7

_FULL_BYTES = {"bf16": 8, "bf16_mixed": 16, "fp32": 16}
_FROZEN_BYTES = {"bf16": 2.0, "bf16_mixed": 2.0, "fp32": 4.0}
_PACKED_BYTES = 0.6
# What is gathered from the other ranks for a forward pass.
_COMPUTED_BYTES = {"bf16": 2, "bf16_mixed": 2, "fp32": 4}
_REFERENCE_BYTES = 2
_ADAPTER_BYTES = 16
# Of those: what a checkpoint holds, which is weights and moments.
_SAVED_BYTES = {"bf16": 6, "bf16_mixed": 12, "fp32": 12}
_SAVED_ADAPTER_BYTES = 12


@dataclass(frozen=True, slots=True)
class States:
    """Bytes of all states together.

    Attributes:
        total: Everything, with the reference.
        weights: Of that, the weights as a forward pass needs them.
        reference: Of that, a DPO reference.
        checkpoint: What a checkpoint holds.
    """

    total: int
    weights: int
    reference: int
    checkpoint: int

    def per_gpu(self, stage: Stage, ranks: int, *, offload: bool) -> int:
        """Bytes on one GPU; the reference is counted whole at every stage."""
        if offload:
            return self.reference
        if stage == 0:
            return self.total
        shared = self.total - self.reference
        if stage == 2:
            return self.weights + (shared - self.weights) // ranks + self.reference
        return shared // ranks + self.reference


def states_of(method: Method, model: ModelFacts) -> States | None:
    """The states of a job; None where the number of parameters is not known."""
    count = model.param_count
    if count is None:
        return None
    if method.lora_rank:
        adapter = model.lora_param_count(method.lora_rank, method.lora_target_modules)
        packed = method.load_in_4bit or model.is_4bit
        base = int((_PACKED_BYTES if packed else _FROZEN_BYTES[method.precision]) * count)
        return States(base + _ADAPTER_BYTES * adapter, base, 0, _SAVED_ADAPTER_BYTES * adapter)
    reference = _REFERENCE_BYTES * count if method.type == "dpo" else 0
    return States(
        total=_FULL_BYTES[method.precision] * count + reference,
        weights=_COMPUTED_BYTES[method.precision] * count,
        reference=reference,
        checkpoint=_SAVED_BYTES[method.precision] * count,
    )


def budget(hardware: Hardware, ranks: int) -> int:
    """Bytes that states may take on one GPU: 70 % of what is left after 2 GiB for the context and the buffers."""
    memory = hardware.memory_per_rank(ranks)
    return memory if hardware.is_cpu else int(BUDGET_SHARE * (memory - RESERVE_BYTES))
