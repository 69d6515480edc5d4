"""From a spec, a machine and a model to a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.planner.advice import warnings
from kernel_launcher.planner.choose import corrected, fit_micro_batch
from kernel_launcher.planner.estimate import Rule
from kernel_launcher.planner.outlook import Outlook, workload_of
from kernel_launcher.planner.plan import Default, Plan
from kernel_launcher.planner.rates import default_rate
from kernel_launcher.planner.shape import Unknown
from kernel_launcher.spec.refusals import layout_faults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_launcher.planner.inputs import Hardware, ModelFacts
    from kernel_launcher.spec import JobSpec
    from kernel_launcher.spec.fields import Method

DEFAULT_LENGTH = 1024
CPU_RANKS = 2
MOST_RANKS = 8
_FATE = {"cut": "cut", "drop": "left out", "refuse": "refused"}


def make_plan(spec: JobSpec, hardware: Hardware, model: ModelFacts) -> Plan:
    """Decide everything that the spec leaves open.

    Args:
        spec: What was asked.
        hardware: What it is for.
        model: What is trained.

    Raises:
        InvalidRequest: What was asked does not go with the number or the kind of GPUs.
    """
    open_settings = _OpenSettings(spec.method)
    ranks = _ranks(spec, hardware)
    if ranks is None:
        ranks, reason = _default_ranks(hardware)
        open_settings.note("gpu_count", ranks, reason)
    asked = spec.method
    if faults := [*layout_faults(asked, ranks), *_format_faults(asked, hardware, model, ranks)]:
        raise InvalidRequest(faults)
    open_settings.fill(model)
    rule = Rule.of(open_settings.method, model, hardware, ranks)
    four_bit = asked.load_in_4bit or model.is_4bit

    def outlook() -> Outlook:
        workload = workload_of(open_settings.method, ranks, on_cpu=hardware.is_cpu, four_bit=four_bit)
        if model.quantized and not model.is_4bit:
            workload = Unknown(f"its weights are stored quantised ({model.quantized})")
        return Outlook(workload, model.shape, hardware.visible_per_rank(ranks))

    stage, trace = rule.stage, [*rule.trace()]
    if asked.zero_stage == "auto" and asked.plan_policy == "peak" and ranks > 1 and not asked.cpu_offload:
        stage, correction = corrected(stage, outlook())
        trace += [correction] if correction else []
    open_settings.set(zero_stage=stage)
    open_settings.set_batch(ranks, outlook())
    method, estimate = open_settings.method, rule.estimate(stage)
    return Plan(
        method=method,
        resources=spec.resources.model_copy(update={"gpu_type": hardware.gpu_type, "gpu_count": ranks}),
        zero_stage_requested=asked.zero_stage,
        estimate=estimate,
        trace=tuple(trace),
        defaults=tuple(open_settings.filled),
        warnings=tuple(warnings(asked, method, estimate, hardware, model)),
        outlook=outlook(),
    )


class _OpenSettings:
    """The hyperparameters on their way to being all decided, and what was filled in."""

    def __init__(self, asked: Method) -> None:
        self.method = asked
        self.filled: list[Default] = []

    def set(self, **decided: Any) -> None:
        """Decide."""
        self.method = self.method.model_copy(update=decided)

    def note(self, key: str, value: Any, reason: str) -> None:
        """Say what was filled in, and why."""
        self.filled.append(Default(key, value, reason))

    def default(self, key: str, value: Any, reason: str) -> None:
        """Fill in a setting, and say so."""
        self.set(**{key: value})
        self.note(key, value, reason)

    def fill(self, model: ModelFacts) -> None:
        """Everything that depends on the method and the model alone."""
        asked, dpo = self.method, self.method.type == "dpo"
        if "precision" not in asked.model_fields_set:
            kept = (
                "a frozen base in bfloat16, the adapter in float32." if asked.lora_rank else "all states in bfloat16."
            )
            self.note("precision", asked.precision, kept)
        if "gradient_checkpointing" not in asked.model_fields_set:
            why = "a third more compute for most of the activations' memory."
            self.note("gradient_checkpointing", asked.gradient_checkpointing, why)
        if asked.learning_rate is None:
            self.default("learning_rate", *default_rate(asked, model))
        length = "max_length" if dpo else "max_seq_length"
        if getattr(asked, length) is None:
            self.default(length, *_default_length(model, asked.too_long))
        if dpo and asked.beta is None:
            self.default("beta", 0.1, "usual for DPO.")
        if dpo and asked.loss_type is None:
            self.default("loss_type", "sigmoid", "DPO as it was published.")
        if asked.num_epochs is None and asked.max_steps is None:
            self.default("num_epochs", 1.0, "one pass over the data.")
        if asked.lora_rank and asked.lora_alpha is None:
            self.default("lora_alpha", float(asked.lora_rank), "equal to lora_rank: a scaling of 1.")
        if asked.checkpoint_every is None:
            self.note("checkpoint_every", 0, "off: this release saves the final model only.")

    def set_batch(self, ranks: int, outlook: Outlook) -> None:
        """Micro batch, accumulation and global batch: what is left open follows from the rest."""
        if self.method.micro_batch_size == "auto":
            self._fit_micro_batch(ranks, outlook)
        if self.method.micro_batch_size is None:
            one = "one sequence" if self.method.packing else "one row"
            self.default("micro_batch_size", 1, f"{one} at a time; raise it first when the GPUs are not busy.")
        asked = self.method
        micro = asked.micro_batch_size if isinstance(asked.micro_batch_size, int) else 1
        each = micro * ranks
        accumulation = asked.gradient_accumulation_steps or (asked.global_batch_size or each) // each
        self.set(
            micro_batch_size=micro,
            gradient_accumulation_steps=accumulation,
            global_batch_size=each * accumulation,
            data_parallel_size=ranks,
        )

    def _fit_micro_batch(self, ranks: int, outlook: Outlook) -> None:
        asked = self.method
        found = fit_micro_batch(ranks, asked.gradient_accumulation_steps, asked.global_batch_size, outlook)
        if found.total is not None and asked.global_batch_size is None:
            self.default("global_batch_size", found.total, "usual with an automatic micro batch.")
        self.default("micro_batch_size", found.micro, found.reason)


def _format_faults(method: Method, hardware: Hardware, model: ModelFacts, ranks: int) -> Iterator[Fault]:
    if method.precision != "fp32" and not hardware.bf16:
        reason = f"{hardware.gpu_type} does not compute in bfloat16."
        yield Fault("method.precision", repr(method.precision), reason, 'Use precision = "fp32".')
    if model.is_4bit and method.lora_rank and not method.load_in_4bit and ranks > 1 and method.zero_stage != 0:
        reason = f"the base is stored in 4 bits ({model.quantized}), which cannot be sharded over {ranks} GPUs."
        fix = "Set zero_stage = 0: each GPU holds its own 4-bit copy. Or use one GPU."
        yield Fault("method.zero_stage", repr(method.zero_stage), reason, fix)


def _ranks(spec: JobSpec, hardware: Hardware) -> int | None:
    if spec.resources.gpu_ids:
        return len(spec.resources.gpu_ids)
    return spec.resources.gpu_count


def _default_ranks(hardware: Hardware) -> tuple[int, str]:
    if hardware.is_cpu:
        ranks = min(CPU_RANKS, hardware.cores)
        return ranks, f"no GPU here: {ranks} rank{'s' if ranks > 1 else ''} on the processor."
    if hardware.slots > MOST_RANKS:
        return MOST_RANKS, f"of the {hardware.slots} x {hardware.gpu_type} here; a job takes {MOST_RANKS} at most."
    where = "here" if hardware.host_memory_bytes is not None else "of one machine"
    return hardware.slots, f"every {hardware.gpu_type} {where}."


def _default_length(model: ModelFacts, too_long: str) -> tuple[int, str]:
    longer = f"longer rows are {_FATE[too_long]}."
    if model.max_length is not None and model.max_length < DEFAULT_LENGTH:
        return model.max_length, f"the model's limit; {longer}"
    return DEFAULT_LENGTH, longer
