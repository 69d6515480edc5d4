"""The plan: every open setting decided, each with its reason, and the memory that it takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kernel_launcher.planner.estimate import Estimate, gb
from kernel_launcher.planner.outlook import Outlook, in_words
from kernel_launcher.planner.shape import Unknown
from kernel_launcher.planner.verdict import GIB, Fit
from kernel_launcher.spec.fields import Method, Resources

if TYPE_CHECKING:
    from kernel_launcher.planner.alternatives import Alternative
    from kernel_launcher.planner.levers import Lever
    from kernel_launcher.planner.peak import Peak
    from kernel_launcher.planner.verdict import Verdict

_MOST_LEVERS = 3


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
        outlook: The job as the memory model sees it.
    """

    method: Method
    resources: Resources
    zero_stage_requested: str | int
    estimate: Estimate
    trace: tuple[str, ...]
    defaults: tuple[Default, ...]
    warnings: tuple[str, ...]
    outlook: Outlook

    @property
    def peak(self) -> Peak | Unknown:
        """What one rank will hold at its worst moment, or why the memory model cannot say."""
        return self.outlook.peak()

    @property
    def verdict(self) -> Verdict:
        """Whether it fits. No verdict ever blocks a run."""
        return self.outlook.verdict()

    def peak_of_rows(self, longest: int) -> dict[str, int | str] | None:
        """The peak of rows of which none has more tokens: a micro-batch is only as wide as its longest row.

        None where the plan's own peak stands: packed rows fill their sequence, and of a measurement or of layers that
        the memory model does not know there is no other number.

        Args:
            longest: Tokens of the longest row, before the cut.
        """
        workload = self.outlook.workload
        if isinstance(workload, Unknown) or self.method.packing or self.outlook.is_measured:
            return None
        length = min(longest, workload.length)
        found = self.outlook.verdict(length=length)
        if found.needed_bytes is None:
            return None
        peak, band = round(found.needed_bytes), round(found.band_bytes)
        return {"length": length, "total_bytes": peak, "band_bytes": band, "phase": found.phase}

    @property
    def peak_text(self) -> str:
        """The verdict in words: number, limit, band, phase and term, and where it is measured, how."""
        words = in_words(self.verdict)
        return f"{words}; {self.outlook.traced}" if self.outlook.is_measured else words

    @property
    def traced_text(self) -> str:
        """A measurement beside what the memory model says; empty where there is only one of the two."""
        traced, peak = self.outlook.traced, self.outlook.by_formula()
        if traced is None or isinstance(peak, Unknown):
            return ""
        measured = traced.peak
        return (
            f"{measured.tensor_bytes / GIB:.2f} GiB of tensors, worst: {measured.worst.name}; "
            f"the memory model: {peak.tensor_bytes / GIB:.2f} GiB, worst: {peak.worst.name} ({traced})"
        )

    @property
    def peak_terms(self) -> dict[str, float]:
        """Bytes at the worst moment by term, with ``overhead`` for what is held beside tensors; empty if unknown."""
        peak, needed = self.peak, self.verdict.needed_bytes
        if isinstance(peak, Unknown) or needed is None:
            return {}
        return {
            **{str(term): size for term, size in peak.worst.terms.items()},
            "overhead": needed - peak.tensor_bytes,
        }

    @property
    def levers(self) -> list[Lever]:
        """What would lower the memory, cheapest first, each with its gain."""
        return self.outlook.levers()

    def alternatives(self) -> list[Alternative]:
        """Every stage, micro batch and recompute of the same optimizer batch, best first."""
        return self.outlook.alternatives()

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
        """The plan for a reader: how it was decided, the plan line, the peak, warnings, and what was filled in."""
        return [
            *self.trace,
            self.line,
            f"peak: {self.peak_text}",
            *([f"measured: {self.traced_text}"] if self.traced_text else []),
            *(f"lever: {lever}" for lever in self.levers_to_tell()),
            *(f"warning: {warning}" for warning in self.warnings),
            *(f"default: {default}" for default in self.defaults),
        ]

    def levers_to_tell(self) -> list[str]:
        """The first levers in words, where there is something to lower."""
        if self.verdict.fit not in (Fit.TIGHT, Fit.DOES_NOT_FIT):
            return []
        return [
            f"{lever.key} = {lever.value}: -{lever.gain_bytes / GIB:.1f} GiB ({lever.cost})"
            for lever in self.levers[:_MOST_LEVERS]
        ]

    def __str__(self) -> str:
        return "\n".join(self.describe())

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """How IPython shows it."""
        printer.text(str(self))

    def html(self) -> str:
        """The plan as a card for a notebook."""
        from kernel_launcher.planner.card import card

        return card(self)

    def _repr_html_(self) -> str:
        return self.html()

    def to_json(self) -> dict[str, Any]:
        """The plan as one JSON object."""
        return {
            "line": self.line,
            "resolved_parallelism": self.resolved_parallelism,
            "warnings": list(self.warnings),
            "peak": self._peak_json(),
            "verdict": self.verdict.fit,
            "verdict_text": self.peak_text,
            "measured": None if self.outlook.traced is None else asdict(self.outlook.traced),
            "levers": [
                {"key": each.key, "value": each.value, "cost": each.cost, "gain_bytes": round(each.gain_bytes)}
                for each in self.levers
            ],
            "defaults": [asdict(default) for default in self.defaults],
            "method": self.method.model_dump(mode="json"),
            "resources": self.resources.model_dump(mode="json"),
            "outlook": asdict(self.outlook),
        }

    def _peak_json(self) -> dict[str, Any] | None:
        peak, verdict = self.peak, self.verdict
        if isinstance(peak, Unknown) or verdict.needed_bytes is None:
            return None
        return {
            "total_bytes": round(verdict.needed_bytes),
            "tensor_bytes": round(peak.tensor_bytes),
            "band_bytes": round(verdict.band_bytes),
            "limit_bytes": round(verdict.limit_bytes),
            "phase": verdict.phase,
            "terms": {term: round(size) for term, size in self.peak_terms.items()},
            "phases": {phase: round(size) for phase, size in peak.by_phase.items()},
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
            outlook=Outlook.from_json(value["outlook"]),
        )
