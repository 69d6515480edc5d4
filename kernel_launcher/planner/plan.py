"""The plan: every open setting decided, each with its reason, and the states that a GPU will hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import InvalidRequest
from kernel_launcher.spec.fields import Method, Resources
from kernel_launcher.spec.refusals import layout_faults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_launcher.planner.inputs import Hardware, ModelFacts
    from kernel_launcher.spec import JobSpec

DEFAULT_LENGTH = 1024
CPU_RANKS = 2
MOST_RANKS = 8
RESERVE_BYTES = 2 * 2**30
BUDGET_SHARE = 0.7

# Bytes a parameter: weights, gradient and two Adam moments (Ultra-Scale Playbook, "memory for weights, gradients and
# optimizer states"); for LoRA the frozen base alone.
FULL_BYTES = {"bf16": 8, "bf16_mixed": 16, "fp32": 16}
FROZEN_BYTES = {"bf16": 2, "bf16_mixed": 2, "fp32": 4}
ADAPTER_BYTES = 16


@dataclass(frozen=True, slots=True)
class Default:
    """A setting that was left open, what it became, and why."""

    key: str
    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.key} = {self.value}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Memory a GPU, in bytes: the states that stay for the whole run, against the budget for them."""

    param_count: int | None
    param_count_source: str
    model_states_bytes: int | None
    per_gpu_bytes: int | None
    budget_bytes: int
    gpu_memory_bytes: int
    host_memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was decided for one job.

    Attributes:
        method: Every hyperparameter, none left open.
        resources: Kind and number of GPUs.
        zero_stage_requested: What the spec said.
        estimate: Memory.
        defaults: What was filled in.
        warnings: What a person should know before the start.
    """

    method: Method
    resources: Resources
    zero_stage_requested: str | int
    estimate: Estimate
    defaults: tuple[Default, ...]
    warnings: tuple[str, ...]

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        assert self.resources.gpu_count is not None
        return self.resources.gpu_count

    @property
    def line(self) -> str:
        """The plan in one line."""
        m = self.method
        states = self.estimate.per_gpu_bytes
        known = "states unknown" if states is None else f"{states / 1e9:.1f} GB states/GPU"
        how = "auto" if self.zero_stage_requested == "auto" else "explicit"
        recompute = "on" if m.gradient_checkpointing else "off"
        return (
            f"plan: dp={m.data_parallel_size} zero_stage={m.zero_stage} tp=1 cp=1 mbs={m.micro_batch_size} "
            f"grad_acc={m.gradient_accumulation_steps} gbs={m.global_batch_size} precision={m.precision} "
            f"gradient_checkpointing={recompute} ({how}: {known})"
        )

    @property
    def resolved_parallelism(self) -> dict[str, Any]:
        """The decided knobs under the names that are submitted, with the estimate."""
        names = (
            "data_parallel_size", "zero_stage", "micro_batch_size", "gradient_accumulation_steps",
            "global_batch_size", "precision", "gradient_checkpointing", "cpu_offload",
        )  # fmt: skip
        knobs = {name: getattr(self.method, name) for name in names}
        return knobs | {"zero_stage_requested": self.zero_stage_requested, "estimate": asdict(self.estimate)}

    def describe(self) -> list[str]:
        """The plan for a reader: what was filled in, the warnings, then the plan line."""
        filled = [f"default: {default}" for default in self.defaults]
        return [*filled, *(f"warning: {warning}" for warning in self.warnings), self.line]

    def __str__(self) -> str:
        return "\n".join(self.describe())

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """How IPython shows it."""
        printer.text(str(self))

    def to_json(self) -> dict[str, Any]:
        """The plan as one JSON object."""
        return {
            "line": self.line,
            "resolved_parallelism": self.resolved_parallelism,
            "warnings": list(self.warnings),
            "defaults": [asdict(default) for default in self.defaults],
            "method": self.method.model_dump(mode="json"),
            "resources": self.resources.model_dump(mode="json"),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Plan:
        """The plan in a run folder."""
        resolved = dict(value["resolved_parallelism"])
        return cls(
            method=Method.model_validate(value["method"]),
            resources=Resources.model_validate(value["resources"]),
            zero_stage_requested=resolved["zero_stage_requested"],
            estimate=Estimate(**resolved["estimate"]),
            defaults=tuple(Default(**default) for default in value["defaults"]),
            warnings=tuple(value["warnings"]),
        )


def make_plan(spec: JobSpec, hardware: Hardware, model: ModelFacts) -> Plan:
    """Decide everything that the spec leaves open.

    Raises:
        InvalidRequest: The batch sizes do not multiply for the number of ranks that was decided.
    """
    filled: dict[str, Default] = {}

    def default(key: str, value: Any, reason: str) -> Any:
        filled[key] = Default(key, value, reason)
        return value

    ranks = _ranks(spec, hardware) or default("gpu_count", *_default_ranks(hardware))
    asked = spec.method
    faults = list(layout_faults(asked, ranks))
    if faults:
        raise InvalidRequest(faults)
    micro = asked.micro_batch_size or 1
    accumulation = asked.gradient_accumulation_steps or (asked.global_batch_size or micro * ranks) // (micro * ranks)
    decided: dict[str, Any] = {
        "micro_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "global_batch_size": micro * accumulation * ranks,
        "data_parallel_size": ranks,
        "zero_stage": 0,
    }
    if asked.zero_stage == "auto" and ranks > 1:
        default("zero_stage", 0, "every rank holds the whole model (DDP); this release does not shard.")
    if asked.learning_rate is None:
        kind = "a LoRA adapter" if asked.lora_rank else "a full fine-tune"
        decided["learning_rate"] = default("learning_rate", 2e-4 if asked.lora_rank else 2e-5, f"usual for {kind}.")
    if asked.max_seq_length is None:
        decided["max_seq_length"] = default("max_seq_length", *_default_length(model))
    if asked.num_epochs is None and asked.max_steps is None:
        decided["num_epochs"] = default("num_epochs", 1.0, "one pass over the data.")
    if asked.lora_rank and asked.lora_alpha is None:
        decided["lora_alpha"] = default("lora_alpha", float(asked.lora_rank), "equal to lora_rank: a scaling of 1.")
    if asked.checkpoint_every is None:
        default("checkpoint_every", 0, "off: this release saves the final model only.")

    method = asked.model_copy(update=decided)
    estimate = _estimate(method, hardware, model, ranks)
    resources = spec.resources.model_copy(update={"gpu_type": hardware.gpu_type, "gpu_count": ranks})
    return Plan(
        method=method,
        resources=resources,
        zero_stage_requested=asked.zero_stage,
        estimate=estimate,
        defaults=tuple(filled.values()),
        warnings=tuple(_warnings(asked, method, estimate, model)),
    )


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
    return hardware.slots, f"every {hardware.gpu_type} here."


def _default_length(model: ModelFacts) -> tuple[int, str]:
    if model.max_length is not None and model.max_length < DEFAULT_LENGTH:
        return model.max_length, "the model's limit; longer rows are cut."
    return DEFAULT_LENGTH, "longer rows are cut."


def _estimate(method: Method, hardware: Hardware, model: ModelFacts, ranks: int) -> Estimate:
    states = None
    if model.param_count is not None:
        if method.lora_rank:
            adapter = model.lora_param_count(method.lora_rank, method.lora_target_modules)
            states = FROZEN_BYTES[method.precision] * model.param_count + ADAPTER_BYTES * adapter
        else:
            states = FULL_BYTES[method.precision] * model.param_count
    memory = hardware.memory_per_rank(ranks)
    budget = memory if hardware.is_cpu else int(BUDGET_SHARE * (memory - RESERVE_BYTES))
    return Estimate(
        param_count=model.param_count,
        param_count_source=model.source,
        model_states_bytes=states,
        per_gpu_bytes=states,
        budget_bytes=budget,
        gpu_memory_bytes=memory,
        host_memory_bytes=hardware.host_memory_bytes,
    )


def _warnings(asked: Method, method: Method, estimate: Estimate, model: ModelFacts) -> Iterator[str]:
    if estimate.per_gpu_bytes is None:
        yield "the model's parameter count is unknown, so its memory is, too."
    elif estimate.per_gpu_bytes > estimate.budget_bytes:
        yield (
            f"states of {estimate.per_gpu_bytes / 1e9:.1f} GB a rank are over the budget of "
            f"{estimate.budget_bytes / 1e9:.1f} GB: {_lighter(method)}."
        )
    if method.lora_rank is None and method.precision == "bf16" and method.optim != "sgd":
        yield (
            'a full fine-tune with precision = "bf16" rounds most updates away at small learning rates; '
            '"bf16_mixed" keeps float32 weights.'
        )
    if (
        model.max_length is not None
        and method.max_seq_length is not None
        and method.max_seq_length > model.max_length
    ):
        yield f"max_seq_length is past the model's limit of {model.max_length} tokens."
    rows, ranks = method.global_batch_size, method.data_parallel_size
    if asked.global_batch_size is None and rows == ranks and ranks != 1:
        yield f"each step trains on {ranks} rows, one a rank; set global_batch_size to pin it."


def _lighter(method: Method) -> str:
    """What would lower the memory of this very job."""
    ways = [] if method.lora_rank else ["set lora_rank"]
    if method.precision == "fp32" or (method.precision == "bf16_mixed" and not method.lora_rank):
        ways.append('use precision = "bf16"')
    return ", or ".join([*ways, "take a smaller model"])
