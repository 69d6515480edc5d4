"""A job as the memory model sees it: its peak, its verdict, and what else it could be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernel_launcher.planner.alternatives import alternatives
from kernel_launcher.planner.levers import levers
from kernel_launcher.planner.peak import peak
from kernel_launcher.planner.shape import ModelShape, Unknown
from kernel_launcher.planner.traced import Traced
from kernel_launcher.planner.verdict import GIB, Fit, Verdict, judge
from kernel_launcher.planner.workload import Lora, Workload
from kernel_launcher.spec.fields import Method

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_launcher.planner.alternatives import Alternative
    from kernel_launcher.planner.levers import Lever
    from kernel_launcher.planner.peak import Peak
    from kernel_launcher.planner.workload import Optimizer

_LEAST_GAIN = 0.05 * GIB
_OPTIMIZERS: dict[str, Optimizer] = {"adamw_torch_fused": "fused", "adamw_torch": "foreach"}


@dataclass(frozen=True, slots=True)
class Outlook:
    """A job for which peaks can be told; unknown where the memory model does not know it.

    Attributes:
        workload: The job as it is planned, or why it is not known.
        shape: The model, or why it is not known.
        limit: Bytes that one rank finds.
        traced: The job as planned, measured; None if nobody asked.
    """

    workload: Workload | Unknown
    shape: ModelShape | Unknown
    limit: int
    traced: Traced | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Outlook:
        """What ``dataclasses.asdict`` gave."""
        workload, shape, traced = value["workload"], value["shape"], value.get("traced")
        return cls(
            _workload(workload),
            Unknown(**shape) if "reason" in shape else ModelShape(**shape),
            value["limit"],
            traced and Traced.from_json(traced),
        )

    @property
    def is_measured(self) -> bool:
        """Whether the peak of the job as planned is a measurement: the memory model cannot say."""
        return self.traced is not None and isinstance(self.by_formula(), Unknown)

    def peak(self, **changes: Any) -> Peak | Unknown:
        """The peak of the job with some changes; a measurement is of the job without any."""
        if self.traced is not None and self.is_measured and not changes:
            return self.traced.peak
        return self.by_formula(**changes)

    def by_formula(self, **changes: Any) -> Peak | Unknown:
        """The peak that the memory model gives the job with some changes."""
        if isinstance(self.workload, Unknown):
            return self.workload
        return peak(replace(self.workload, **changes), self.shape)

    def verdict(self, **changes: Any) -> Verdict:
        """The verdict on the job with some changes."""
        ranks = 1 if isinstance(self.workload, Unknown) else self.workload.world_size
        return judge(self.peak(**changes), self.limit, ranks)

    def levers(self) -> list[Lever]:
        """What would lower the peak by so much that it shows, as far as a job can be told to, cheapest first."""
        if isinstance(self.workload, Unknown):
            return []
        found = levers(self.workload, self.shape)
        return [lever for lever in found if lever.gain_bytes > _LEAST_GAIN and lever.key in Method.model_fields]

    def alternatives(self) -> list[Alternative]:
        """Every stage, micro batch and recompute of the same optimizer batch, best first."""
        return [] if isinstance(self.workload, Unknown) else alternatives(self.workload, self.shape, self.limit)


def in_words(verdict: Verdict) -> str:
    """A verdict with number, limit, band and phase, and the term that dominates where there is something to lower."""
    if verdict.fit in (Fit.TIGHT, Fit.DOES_NOT_FIT) and verdict.term != "measured":
        return f"{verdict}, most of it {verdict.term}"
    return str(verdict)


def optimizer_kind(method: Method) -> Optimizer | Unknown:
    """Which AdamW a job gets: where all there is of the weights is bf16, the one that rounds by chance."""
    kind = _OPTIMIZERS.get(method.optim)
    if kind is None:
        return Unknown(f"the memory model is for AdamW, not for {method.optim}")
    return "stochastic" if method.precision == "bf16" and not method.lora_rank else kind


def workload_of(method: Method, ranks: int, *, on_cpu: bool, four_bit: bool) -> Workload | Unknown:
    """What a rank's memory depends on, of decided hyperparameters.

    Args:
        method: Hyperparameters; an automatic stage counts as 0, an automatic micro batch as 1.
        ranks: Number of ranks.
        on_cpu: Whether they run on the processor.
        four_bit: Whether the frozen base is packed.
    """
    optimizer = optimizer_kind(method)
    if isinstance(optimizer, Unknown):
        return optimizer
    lora = None
    if method.lora_rank:
        lora = Lora(
            rank=method.lora_rank,
            targets=method.lora_target_modules,
            dropout=method.lora_dropout,
            four_bit=four_bit,
        )
    dpo = method.type == "dpo"
    return Workload(
        zero_stage=0 if method.zero_stage == "auto" else method.zero_stage,
        world_size=ranks,
        micro_batch_size=method.micro_batch_size if isinstance(method.micro_batch_size, int) else 1,
        length=(method.max_length if dpo else method.max_seq_length) or 1,
        precision=method.precision,
        recompute=method.gradient_checkpointing,
        method="dpo" if dpo else "sft_text",
        lora=lora,
        optimizer=optimizer,
        # Where packed rows meet is said by a mask.
        mask="always" if method.packing else "padded",
        accumulation_steps=method.gradient_accumulation_steps or 1,
        sync_each_batch=True,
        cpu_offload=method.cpu_offload,
        device="cpu" if on_cpu else "cuda",
    )


def _workload(value: Mapping[str, Any]) -> Workload | Unknown:
    if "reason" in value:
        return Unknown(**value)
    lora = value["lora"]
    adapter = None if lora is None else Lora(**{**lora, "targets": tuple(lora["targets"])})
    return Workload(**{**value, "lora": adapter})
