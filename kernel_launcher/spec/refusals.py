"""What is refused although every single value is well formed. Pure: no look at files, data or GPUs."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from kernel_launcher.errors import Fault
from kernel_launcher.secrets import redact, shown
from kernel_launcher.spec.fields import NotYet
from kernel_launcher.spec.findings import ACCEPTABLE, FATAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_launcher.spec.fields import Method, Section
    from kernel_launcher.spec.job import JobSpec


TRAINED = ("sft_text", "dpo")
# For methods with a layout of their own.
_MULTI_GPU = (
    "zero_stage", "cpu_offload", "micro_batch_size", "gradient_accumulation_steps", "global_batch_size",
    "data_parallel_size", "tensor_parallel_size", "context_parallel_size", "pipeline_parallel_size",
    "expert_parallel_size",
)  # fmt: skip
# Settings of one method, and what the other calls the same.
_OF_SFT = {"max_seq_length": "max_length", "packing": "", "loss_on": ""}
_OF_DPO = {"max_length": "max_seq_length", "beta": "", "loss_type": "", "max_prompt_length": ""}


def refusals(spec: JobSpec) -> list[Fault]:
    """Every fault of a spec that its fields cannot see one by one, and that no plan can be made of."""
    return [
        *_missing(spec), *_not_built(spec, planned=False), *_method(spec), *_own_settings(spec), *_layout(spec),
        *_adapter(spec), *_gpus(spec), *_allowed(spec),
    ]  # fmt: skip


def run_refusals(spec: JobSpec) -> list[Fault]:
    """What can be planned, and this release cannot run."""
    return list(_not_built(spec, planned=True))


def not_in_release(key: str, value: object, mark: NotYet) -> Fault:
    """The refusal of a known name without its feature."""
    reason = f"not in this release: {mark.feature}."
    return Fault(key, shown(key, value), reason, mark.instead, "not_in_release")


def _missing(spec: JobSpec) -> Iterator[Fault]:
    name = spec.job.name
    if name == "last":
        yield Fault("job.name", "'last'", "means the newest job, whatever it is called.", "Take another name.")
    if name is not None and redact(name) != name:
        yield Fault(
            "job.name", shown("name", name), "looks like a token, and would be a folder.", "Take another name."
        )
    if spec.model.base is None:
        yield Fault("model.base", "", "no base model.", 'Name a folder or a hub id: base = "./sample/smollm2".')


def _not_built(spec: JobSpec, *, planned: bool) -> Iterator[Fault]:
    for name in type(spec).model_fields:
        section: Section = getattr(spec, name)
        for field, info in type(section).model_fields.items():
            value = getattr(section, field)
            mark = next((item for item in info.metadata if isinstance(item, NotYet)), None)
            if mark and mark.planned == planned and value and value != info.default:
                yield not_in_release(f"{name}.{field}", value, mark)


def _method(spec: JobSpec) -> Iterator[Fault]:
    method = spec.method
    if method.type not in TRAINED:
        reason = f"this release does not train {method.type!r}; the name is kept for it."
        yield Fault("method.type", repr(method.type), reason, 'Use "sft_text".', "not_in_release")
    if method.use_liger and method.use_unsloth:
        reason = "both patch the same kernels."
        yield Fault("method.use_liger", "True", reason, "Keep one of use_liger and use_unsloth.")
    if method.warmup_steps and method.warmup_ratio:
        reason = "warmup_steps and warmup_ratio both set the warm-up."
        yield Fault("method.warmup_ratio", repr(method.warmup_ratio), reason, "Keep one of them.")
    if method.max_length and method.max_prompt_length and method.max_prompt_length >= method.max_length:
        reason = f"leaves no token of max_length = {method.max_length} to an answer."
        yield Fault("method.max_prompt_length", str(method.max_prompt_length), reason, "Set it lower.")
    if method.lr_scheduler_type == "constant" and (method.warmup_steps or method.warmup_ratio):
        fix = 'Use "constant_with_warmup", or leave the warm-up out.'
        yield Fault("method.lr_scheduler_type", "'constant'", "a constant rate has no warm-up.", fix)


def _own_settings(spec: JobSpec) -> Iterator[Fault]:
    """Settings of another method than the one that is asked for: nothing is taken and ignored."""
    method = spec.method
    if method.type not in TRAINED:
        for name in _MULTI_GPU:
            value = getattr(method, name)
            if value is True or value not in (None, "auto", 0, 1):
                key, reason = f"method.{name}", f"{method.type} has a layout of its own."
                yield Fault(key, shown(key, value), reason, "Leave it out: it is for sft_text and dpo.")
        return
    others, own = (_OF_DPO, "dpo") if method.type == "sft_text" else (_OF_SFT, "sft_text")
    for name, here in others.items():
        value = getattr(method, name)
        if value != type(method).model_fields[name].default:
            fix = f"For {method.type}, use {here}." if here else "Leave it out."
            yield Fault(f"method.{name}", shown(name, value), f"is a setting of {own}.", fix)


def _layout(spec: JobSpec) -> Iterator[Fault]:
    method = spec.method
    if method.cpu_offload and method.zero_stage == 0:
        reason = "only sharded states can be parked in host memory, and zero_stage = 0 shards nothing."
        yield Fault("method.cpu_offload", "True", reason, 'Use zero_stage = 3, or leave it at "auto".')
    ids = spec.resources.gpu_ids
    ranks = len(ids) if ids else spec.resources.gpu_count
    if ranks is not None:
        yield from layout_faults(spec.method, ranks)


def layout_faults(method: Method, ranks: int) -> Iterator[Fault]:
    """What does not go with so many ranks, once their number is known."""
    yield from _product(method, ranks)
    yield from _alone(method) if ranks == 1 else _several(method, ranks)
    yield from _batch(method, ranks)


def _product(method: Method, ranks: int) -> Iterator[Fault]:
    if method.data_parallel_size is None:
        return
    product = (
        method.tensor_parallel_size
        * method.context_parallel_size
        * method.data_parallel_size
        * method.pipeline_parallel_size
    )
    if product != ranks:
        reason = f"TP*CP*DP*PP={product} != WORLD_SIZE={ranks}."
        fix = f"Leave it out, or set it to the number of GPUs ({ranks})."
        yield Fault("method.data_parallel_size", str(method.data_parallel_size), reason, fix)


def _alone(method: Method) -> Iterator[Fault]:
    fix = "Use more GPUs, or leave it out; lora_rank lowers the memory most."
    if method.zero_stage in (2, 3):
        reason = "one GPU has nobody to share its states with."
        yield Fault("method.zero_stage", str(method.zero_stage), reason, fix)
    if method.cpu_offload:
        yield Fault("method.cpu_offload", "True", "it parks sharded states, and one GPU shards nothing.", fix)


def _several(method: Method, ranks: int) -> Iterator[Fault]:
    if method.load_in_4bit and method.zero_stage != 0:
        reason = f"4-bit weights cannot be sharded over {ranks} GPUs."
        fix = "Set zero_stage = 0: each GPU holds its own 4-bit copy. Or use one GPU."
        yield Fault("method.load_in_4bit", "True", reason, fix)
    for name in ("use_unsloth", "use_liger"):
        if getattr(method, name):
            reason = f"is for one GPU, and this job has {ranks}."
            yield Fault(f"method.{name}", "True", reason, "Leave it off, or use one GPU.")


def _batch(method: Method, ranks: int) -> Iterator[Fault]:
    total, accumulation = method.global_batch_size, method.gradient_accumulation_steps
    if total is None:
        return
    free = method.micro_batch_size == "auto"
    unit = ranks * (method.micro_batch_size if isinstance(method.micro_batch_size, int) else 1)
    if free:
        unit *= accumulation or 1
    elif accumulation is not None:
        if total != unit * accumulation:
            reason = f"micro_batch_size x gradient_accumulation_steps x GPUs = {unit * accumulation}, not {total}."
            yield Fault("method.global_batch_size", str(total), reason, "Leave one of them out: it is derived.")
        return
    if total % unit:
        below, above = total // unit * unit, -(-total // unit) * unit
        choices = f"{below} or {above}" if below else str(above)
        of = "gradient_accumulation_steps x GPUs" if free else "micro_batch_size x GPUs"
        reason = f"not a multiple of {of} = {unit}."
        yield Fault("method.global_batch_size", str(total), reason, f"Use {choices}.")


def _adapter(spec: JobSpec) -> Iterator[Fault]:
    method = spec.method
    if method.lora_rank is not None:
        if not method.lora_target_modules:
            yield Fault("method.lora_target_modules", "[]", "an adapter on no layer trains nothing.", "Leave it out.")
        return
    if method.load_in_4bit:
        reason = "4-bit weights stay frozen; without lora_rank nothing is trained."
        yield Fault("method.load_in_4bit", "True", reason, "Set lora_rank, say 16.")
    if spec.huggingface.artifact == "adapter":
        reason = "without lora_rank there is no adapter to publish."
        yield Fault("huggingface.artifact", "'adapter'", reason, 'Set lora_rank, or use "merged".')
    for name in ("lora_alpha", "lora_dropout", "lora_target_modules"):
        value = getattr(method, name)
        if value != type(method).model_fields[name].default:
            key = f"method.{name}"
            yield Fault(key, shown(key, value), "without lora_rank there is no adapter.", "Set lora_rank, say 16.")


def _gpus(spec: JobSpec) -> Iterator[Fault]:
    ids, count = spec.resources.gpu_ids, spec.resources.gpu_count
    if ids is None:
        return
    key, given = "resources.gpu_ids", shown("gpu_ids", ids)
    if not 1 <= len(ids) <= 8:
        yield Fault(key, given, "must name 1 to 8 GPUs.", "")
    if len(set(ids)) != len(ids):
        yield Fault(key, given, "names a GPU twice.", "One rank takes one GPU.")
    if count not in (None, len(ids)):
        yield Fault(key, given, f"names {len(ids)} GPUs, but gpu_count is {count}.", "Leave gpu_count out.")


def _allowed(spec: JobSpec) -> Iterator[Fault]:
    for code in spec.method.allow:
        given = shown("allow", code)
        if code in FATAL:
            yield Fault("method.allow", given, "no run goes on with this finding.", "Mend the rows, or remove them.")
        elif code not in ACCEPTABLE:
            close = get_close_matches(code.lower(), ACCEPTABLE, n=1, cutoff=0.4)
            fix = f"Did you mean '{close[0]}'?" if close else f"Findings are: {', '.join(ACCEPTABLE)}."
            yield Fault("method.allow", given, "no such finding.", fix)
