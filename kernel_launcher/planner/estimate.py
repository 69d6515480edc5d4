"""The estimate by the published rule, and the trace of the decision that it leads to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel_launcher.planner.states import BUDGET_SHARE, RESERVE_BYTES, budget, states_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_launcher.planner.inputs import Hardware, ModelFacts
    from kernel_launcher.planner.states import States
    from kernel_launcher.planner.workload import Stage
    from kernel_launcher.spec.fields import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Memory in bytes: the states that stay for the whole run, against the budget for them.

    Attributes:
        param_count: Parameters as stored on disk; None if unknown.
        param_count_source: Where the count is from.
        model_states_bytes: All states together, with a DPO reference; None if unknown.
        reference_model_bytes: Of that, the reference.
        per_gpu_bytes: What one GPU holds of them; None if unknown.
        budget_bytes: What it may hold.
        gpu_memory_bytes: Its memory as sold.
        host_memory_bytes: Memory of the host; None for a machine that is elsewhere.
        checkpoint_bytes: What a checkpoint takes on disk; None if unknown.
    """

    param_count: int | None
    param_count_source: str
    model_states_bytes: int | None
    reference_model_bytes: int | None
    per_gpu_bytes: int | None
    budget_bytes: int
    gpu_memory_bytes: int
    host_memory_bytes: int | None
    checkpoint_bytes: int | None


@dataclass(frozen=True, slots=True)
class Rule:
    """What the published rule sees of a job: states, budget, number of ranks."""

    method: Method
    model: ModelFacts
    hardware: Hardware
    ranks: int
    states: States | None
    budget: int

    @classmethod
    def of(cls, method: Method, model: ModelFacts, hardware: Hardware, ranks: int) -> Rule:
        """The rule's view of a job."""
        return cls(method, model, hardware, ranks, states_of(method, model), budget(hardware, ranks))

    @property
    def stage(self) -> Stage:
        """The stage that the rule picks: 0 if the states fit the budget of one GPU, else 3, never 2."""
        if self.method.zero_stage != "auto":
            return self.method.zero_stage
        if self.ranks == 1:
            return 0
        if self.method.cpu_offload:
            return 3
        return 0 if self.states is None or self.states.total <= self.budget else 3

    def per_gpu(self, stage: Stage) -> int | None:
        """Bytes of states on one GPU at a stage; None if unknown."""
        return (
            None if self.states is None else self.states.per_gpu(stage, self.ranks, offload=self.method.cpu_offload)
        )

    def estimate(self, stage: Stage) -> Estimate:
        """The estimate at a stage."""
        states = self.states
        return Estimate(
            param_count=self.model.param_count,
            param_count_source=self.model.source,
            model_states_bytes=states.total if states else None,
            reference_model_bytes=states.reference if states else None,
            per_gpu_bytes=self.per_gpu(stage),
            budget_bytes=self.budget,
            gpu_memory_bytes=self.hardware.memory_per_rank(self.ranks),
            host_memory_bytes=self.hardware.host_memory_bytes,
            checkpoint_bytes=states.checkpoint if states else None,
        )

    def trace(self) -> Iterator[str]:
        """Parameter count, budget and decision, in this order, for the top of a log."""
        count, rank = self.model.param_count, "rank" if self.hardware.is_cpu else "GPU"
        yield f"parameters: {'unknown' if count is None else f'{count:,}'} ({self.model.source})"
        memory = self.hardware.memory_per_rank(self.ranks)
        if self.hardware.is_cpu:
            whole = f"a rank's part of 70 % of host memory, {self.ranks} rank{'s' if self.ranks > 1 else ''}"
        else:
            whole = f"{BUDGET_SHARE:.0%} of {gb(memory)} after {RESERVE_BYTES // 2**30} GiB".replace("%", " %")
        yield f"budget: {gb(self.budget)} of states a {rank} ({whole})"
        yield f"decision: zero_stage = {self.stage}: {self._because(rank)}"

    def _because(self, rank: str) -> str:
        if self.method.zero_stage != "auto":
            return "as asked."
        if self.ranks == 1:
            return f"one {rank} has nobody to share with."
        if self.method.cpu_offload:
            return "cpu_offload parks sharded states in host memory."
        if self.states is None:
            return "the parameter count is unknown, so nothing says that the states do not fit."
        states = gb(self.states.total)
        if self.stage == 0:
            return f"states of {states} fit the budget; every {rank} holds the whole model."
        per_gpu = gb(self.states.per_gpu(3, self.ranks, offload=False))
        whole = f", the reference of {gb(self.states.reference)} whole" if self.states.reference else ""
        return f"states of {states} do not fit the budget; over {self.ranks} {rank}s it is {per_gpu} each{whole}."


def gb(size: float) -> str:
    """Bytes as decimal gigabytes, as GPUs are sold."""
    return f"{size / 1e9:.1f} GB"
