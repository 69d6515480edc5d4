"""Warnings: what a person would want to know before the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_launcher.planner.estimate import gb
from kernel_launcher.planner.rates import unusual

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_launcher.planner.estimate import Estimate
    from kernel_launcher.planner.inputs import Hardware, ModelFacts
    from kernel_launcher.spec.fields import Method

_HOST_SHARE = 0.8
_LOADED_BYTES = {"bf16": 2, "bf16_mixed": 4, "fp32": 4}


def warnings(
    asked: Method, method: Method, estimate: Estimate, hardware: Hardware, model: ModelFacts
) -> Iterator[str]:
    """Everything about a plan that is worth a warning.

    Args:
        asked: The hyperparameters as they were set.
        method: The same, all decided.
        estimate: The states against their budget.
        hardware: What the plan is for.
        model: What is trained.
    """
    yield from _memory(method, estimate)
    yield from _host(method, hardware, model)
    if method.lora_rank is None and method.precision == "bf16" and method.optim == "adafactor":
        yield (
            'Adafactor on weights in "bf16" alone rounds most updates away at small learning rates; '
            'AdamW rounds by chance there, and "bf16_mixed" keeps float32 weights.'
        )
    length = method.max_length if method.type == "dpo" else method.max_seq_length
    if model.max_length is not None and length is not None and length > model.max_length:
        name = "max_length" if method.type == "dpo" else "max_seq_length"
        yield f"{name} is past the model's limit of {model.max_length} tokens."
    yield from unusual(method, model)
    yield from _batch(asked, method, hardware)


def _memory(method: Method, estimate: Estimate) -> Iterator[str]:
    if estimate.per_gpu_bytes is None:
        yield "the model's parameter count is unknown, so its memory is, too."
    elif estimate.per_gpu_bytes > estimate.budget_bytes:
        yield (
            f"states of {gb(estimate.per_gpu_bytes)} a rank are over the budget of {gb(estimate.budget_bytes)}: "
            f"{_lighter(method)}."
        )


def _lighter(method: Method) -> str:
    """What would lower the memory of this very job."""
    lora = bool(method.lora_rank)
    ways = [] if lora else ["set lora_rank (a frozen base of 2 bytes a parameter)"]
    if not method.cpu_offload and not method.load_in_4bit:
        ways.append("cpu_offload = true with sharding")
    ways.append("more GPUs" if method.zero_stage != 0 else "more GPUs with zero_stage = 3")
    lowest = method.precision == "bf16" or (method.precision == "bf16_mixed" and lora)
    ways.append('precision = "bf16" is the least already' if lowest else 'precision = "bf16"')
    return "; ".join(ways)


def _host(method: Method, hardware: Hardware, model: ModelFacts) -> Iterator[str]:
    """Of several ranks the first reads the weights for all; one alone reads them straight to its GPU."""
    host = hardware.host_memory_bytes
    if model.param_count is None or host is None or hardware.is_cpu or method.data_parallel_size == 1:
        return
    each = _LOADED_BYTES["bf16" if method.lora_rank and method.precision == "bf16_mixed" else method.precision]
    loaded = each * model.param_count
    if loaded > _HOST_SHARE * host:
        yield (
            f"rank 0 reads {gb(loaded)} into host memory, more than {_HOST_SHARE:.0%} of its {gb(host)}; "
            "use a machine with more memory."
        ).replace("%", " %")


def _batch(asked: Method, method: Method, hardware: Hardware) -> Iterator[str]:
    ranks, micro, accumulation = (
        method.data_parallel_size,
        method.micro_batch_size,
        method.gradient_accumulation_steps,
    )
    assert isinstance(micro, int)
    assert ranks is not None
    assert accumulation is not None
    if ranks == 1:
        return
    if asked.global_batch_size is None and asked.micro_batch_size != "auto":
        alone, what = micro * accumulation, "sequences" if method.packing else "rows"
        yield (
            f"each step trains on {alone * ranks} {what} over {ranks} ranks, on one it would be {alone}; "
            f"set global_batch_size to pin it."
        )
    whole_gradients = method.lora_rank is None or method.zero_stage != 0
    if hardware.link == "pcie" and micro * accumulation == 1 and whole_gradients:
        yield (
            "micro_batch_size 1 over PCIe: exchanging the gradients takes longer than tiny steps do (Qwen3-0.6B on "
            "four L4: 569 tokens/s against 556 on one; at micro_batch_size 8, 4,758 against 1,976). Raise "
            "micro_batch_size, max_seq_length or gradient_accumulation_steps."
        )
