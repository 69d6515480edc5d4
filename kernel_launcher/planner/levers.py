"""What would lower a peak: each change with what it gains and what it costs, cheapest first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernel_launcher.planner.peak import peak
from kernel_launcher.planner.shape import Unknown
from kernel_launcher.planner.workload import Lora

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_launcher.planner.shape import ModelShape
    from kernel_launcher.planner.workload import Workload

LORA_RANK = 16
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Lever:
    """One change of a job.

    Attributes:
        key: The setting, as in a job file.
        value: What to set it to.
        cost: What is given up for it, in a few words.
        gain_bytes: How much lower the peak of a rank is then.
        workload: The job with that change.
    """

    key: str
    value: Any
    cost: str
    gain_bytes: float
    workload: Workload = field(repr=False)


def levers(workload: Workload, shape: ModelShape | Unknown) -> list[Lever]:
    """Every single change that lowers the peak, the cheapest first; nothing that is on already is among them."""
    now = peak(workload, shape)
    if isinstance(now, Unknown):
        return []
    found = []
    for key, value, cost, changed in _changes(workload):
        then = peak(changed, shape)
        assert not isinstance(then, Unknown)
        if (gain := now.tensor_bytes - then.tensor_bytes) > 0:
            found.append(Lever(key, value, cost, gain, changed))
    return found


def _changes(w: Workload) -> Iterator[tuple[str, Any, str, Workload]]:
    """Changes in the order of what they cost: nothing, traffic, time, precision, what is trained."""
    if w.optimizer == "foreach":
        yield "optim", "adamw_torch_fused", "nothing", replace(w, optimizer="fused")
    if w.accumulation_steps > 1 and w.sharded and not w.sync_each_batch:
        cost = "gradients travel once a micro-batch"
        yield "sync_each_batch", True, cost, replace(w, sync_each_batch=True)
    if w.world_size > 1 and not (w.lora is not None and w.lora.four_bit):
        if w.zero_stage == 0:
            yield "zero_stage", 2, "weights travel once a micro-batch", replace(w, zero_stage=2)
        if w.zero_stage != 3:
            yield "zero_stage", 3, "weights travel twice a micro-batch", replace(w, zero_stage=3)
    if w.micro_batch_size > 1:
        half = w.micro_batch_size // 2
        steps = -(-w.accumulation_steps * w.micro_batch_size // half)
        changed = replace(w, micro_batch_size=half, accumulation_steps=steps)
        yield "micro_batch_size", half, "more, smaller steps of the GPU", changed
    if not w.recompute:
        yield "gradient_checkpointing", True, "a third more computing", replace(w, recompute=True)
    if w.precision == "fp32" or (w.precision == "bf16_mixed" and w.lora is None):
        cost = "small updates are rounded away"
        yield "precision", "bf16", cost, replace(w, precision="bf16")
    if w.length > 1:
        key = "max_length" if w.method == "dpo" else "max_seq_length"
        yield key, w.length // 2, "longer rows are cut", replace(w, length=w.length // 2)
    if w.sharded and not w.cpu_offload:
        yield "cpu_offload", True, "each step waits for the host", replace(w, cpu_offload=True)
    if w.lora is None:
        adapter = Lora(rank=LORA_RANK, targets=LORA_TARGETS)
        yield "lora_rank", LORA_RANK, "an adapter is trained, not the weights", replace(w, lora=adapter)
    elif not w.lora.four_bit and not w.sharded and w.device == "cuda":
        cost = "the base is rounded to 4 bits"
        yield "load_in_4bit", True, cost, replace(w, lora=replace(w.lora, four_bit=True))
