"""The plan: every open setting decided, each with its reason, and the memory that it takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kernel_launcher.planner.estimate import Estimate, gb
from kernel_launcher.spec.fields import Method, Resources


@dataclass(frozen=True, slots=True)
class Default:
    """A setting that was left open, what it became, and why."""

    key: str
    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.key} = {self.value}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was decided for one job.

    Attributes:
        method: Every hyperparameter, none left open.
        resources: Kind and number of GPUs.
        zero_stage_requested: What the spec said.
        estimate: The states by the published rule.
        trace: How ``zero_stage`` was decided, line by line.
        defaults: What was filled in.
        warnings: What a person should know before the start.
    """

    method: Method
    resources: Resources
    zero_stage_requested: str | int
    estimate: Estimate
    trace: tuple[str, ...]
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
        known = "states unknown" if states is None else f"{gb(states)} states/GPU"
        how = "auto" if self.zero_stage_requested == "auto" else "explicit"
        recompute = "on" if m.gradient_checkpointing else "off"
        return (
            f"plan: dp={m.data_parallel_size} zero_stage={m.zero_stage} tp=1 cp=1 mbs={m.micro_batch_size} "
            f"grad_acc={m.gradient_accumulation_steps} gbs={m.global_batch_size} precision={m.precision} "
            f"gradient_checkpointing={recompute} ({how}: {known})"
        )

    @property
    def resolved_parallelism(self) -> dict[str, Any]:
        """The decided knobs under the names that are submitted, with the estimate and the trace."""
        names = (
            "data_parallel_size", "zero_stage", "micro_batch_size", "gradient_accumulation_steps",
            "global_batch_size", "precision", "gradient_checkpointing", "cpu_offload",
        )  # fmt: skip
        knobs = {name: getattr(self.method, name) for name in names}
        return knobs | {
            "zero_stage_requested": self.zero_stage_requested,
            "estimate": asdict(self.estimate),
            "trace": list(self.trace),
        }

    def describe(self) -> list[str]:
        """The plan for a reader: how it was decided, the plan line, the warnings, and what was filled in."""
        filled = [f"default: {default}" for default in self.defaults]
        return [*self.trace, self.line, *(f"warning: {warning}" for warning in self.warnings), *filled]

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
            trace=tuple(resolved["trace"]),
            defaults=tuple(Default(**default) for default in value["defaults"]),
            warnings=tuple(value["warnings"]),
        )
