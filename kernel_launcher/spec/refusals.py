"""What is refused although every single value is well formed. Pure: no look at files, data or GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_launcher.errors import Fault
from kernel_launcher.secrets import redact, shown
from kernel_launcher.spec.fields import NotYet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_launcher.spec.fields import Method, Section
    from kernel_launcher.spec.job import JobSpec


def refusals(spec: JobSpec) -> list[Fault]:
    """Every fault of a spec that its fields cannot see one by one."""
    return [*_missing(spec), *_not_built(spec), *_method(spec), *_layout(spec), *_adapter(spec), *_gpus(spec)]


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


def _not_built(spec: JobSpec) -> Iterator[Fault]:
    for name in type(spec).model_fields:
        section: Section = getattr(spec, name)
        for field, info in type(section).model_fields.items():
            value = getattr(section, field)
            mark = next((item for item in info.metadata if isinstance(item, NotYet)), None)
            if mark and value and value != info.default:
                key = f"{name}.{field}"
                yield Fault(key, shown(key, value), f"not in this release: {mark.feature}.", mark.instead)


def _method(spec: JobSpec) -> Iterator[Fault]:
    if spec.method.type != "sft_text":
        reason = f"this release does not train {spec.method.type!r}; the name is kept for it."
        yield Fault("method.type", repr(spec.method.type), reason, 'Use "sft_text".')
    if spec.method.warmup_steps and spec.method.warmup_ratio:
        reason = "warmup_steps and warmup_ratio both set the warm-up."
        yield Fault("method.warmup_ratio", repr(spec.method.warmup_ratio), reason, "Keep one of them.")
    if spec.method.lr_scheduler_type == "constant" and (spec.method.warmup_steps or spec.method.warmup_ratio):
        fix = 'Use "constant_with_warmup", or leave the warm-up out.'
        yield Fault("method.lr_scheduler_type", "'constant'", "a constant rate has no warm-up.", fix)


def _layout(spec: JobSpec) -> Iterator[Fault]:
    ids = spec.resources.gpu_ids
    ranks = len(ids) if ids else spec.resources.gpu_count
    if ranks is not None:
        yield from layout_faults(spec.method, ranks)


def layout_faults(method: Method, ranks: int) -> Iterator[Fault]:
    """What does not multiply, once the number of ranks is known."""
    if method.data_parallel_size not in (None, ranks):
        reason = f"TP*CP*DP*PP={method.data_parallel_size} != WORLD_SIZE={ranks}."
        fix = f"Leave it out, or set it to the number of GPUs ({ranks})."
        yield Fault("method.data_parallel_size", str(method.data_parallel_size), reason, fix)
    total, accumulation = method.global_batch_size, method.gradient_accumulation_steps
    if total is None:
        return
    unit = (method.micro_batch_size or 1) * ranks
    if accumulation is not None and total != unit * accumulation:
        reason = f"micro_batch_size x gradient_accumulation_steps x GPUs = {unit * accumulation}, not {total}."
        yield Fault("method.global_batch_size", str(total), reason, "Leave one of them out: it is derived.")
    elif total % unit:
        below, above = total // unit * unit, -(-total // unit) * unit
        choices = f"{below} or {above}" if below else str(above)
        reason = f"not a multiple of micro_batch_size x GPUs = {unit}."
        yield Fault("method.global_batch_size", str(total), reason, f"Use {choices}.")


def _adapter(spec: JobSpec) -> Iterator[Fault]:
    method = spec.method
    if method.lora_rank is not None:
        if not method.lora_target_modules:
            yield Fault("method.lora_target_modules", "[]", "an adapter on no layer trains nothing.", "Leave it out.")
        return
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
