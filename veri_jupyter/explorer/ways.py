"""What else a plan could be: each stage with its reason, the cheapest levers, the best other ways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import InvalidRequest
from kernel_launcher.planner.alternatives import traffic
from kernel_launcher.planner.shape import Unknown
from kernel_launcher.planner.verdict import GIB, Fit
from kernel_launcher.protocol.summary import size
from kernel_launcher.spec import read_spec
from veri_jupyter.explorer.state import plan_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_launcher.planner import Plan
    from kernel_launcher.planner.alternatives import Alternative
    from kernel_launcher.planner.levers import Lever
    from kernel_launcher.planner.verdict import Verdict
    from kernel_launcher.planner.workload import Stage, Workload
    from veri_jupyter.explorer.state import State

MOST_LEVERS, MOST_OTHERS = 2, 3
_COLUMNS = "{:>5} {:>6} {:>10} {:>10}  {:<7} {:>9}"
HEADS = _COLUMNS.format("stage", "micro", "recompute", "peak", "verdict", "sent")
_STAGES: tuple[Stage, ...] = (0, 2, 3)
_LEAST_GAIN = 0.05 * GIB
_SAID = {True: "on", False: "off"}
_WORDS = {Fit.FITS: "fits", Fit.TIGHT: "tight", Fit.DOES_NOT_FIT: "over", Fit.CANNOT_SAY: ""}


@dataclass(frozen=True, slots=True)
class Way:
    """Something that one click changes.

    Attributes:
        text: What it is, and what comes of it.
        changes: Settings by dotted name.
    """

    text: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StageReason:
    """A stage, whether it is the plan's, and why (not)."""

    stage: Stage
    chosen: bool
    reason: str


def stages(plan: Plan, others: list[Alternative]) -> list[StageReason]:
    """Every stage with what speaks for or against it; none where the memory model does not know the job."""
    work, shape = plan.outlook.workload, plan.outlook.shape
    if isinstance(work, Unknown) or isinstance(shape, Unknown):
        return []
    possible = {other.workload.zero_stage for other in others}
    now = traffic(work, shape)
    found = []
    for stage in _STAGES:
        if stage not in possible:
            found.append(StageReason(stage, False, _impossible(work)))
            continue
        sent = traffic(replace(work, zero_stage=stage), shape)
        chosen = stage == work.zero_stage
        found.append(
            StageReason(stage, chosen, _reason(plan.outlook.verdict(zero_stage=stage), sent, now, chosen=chosen))
        )
    return found


def levers(state: State, plan: Plan) -> list[Way]:
    """The cheapest changes that lower the memory, each with what it truly gives: what is left open may follow it."""
    found = (_pulled(state, plan, lever) for lever in plan.levers)
    return list(islice(filter(None, found), MOST_LEVERS))


def others(state: State, plan: Plan, found: list[Alternative]) -> list[Way]:
    """The best other ways to run the same optimizer batch; where none of them fits, those that need least.

    Of a plan that may fit, only those that may fit, too.
    """
    work, fit = plan.outlook.workload, plan.verdict.fit
    if isinstance(work, Unknown):
        return []
    rest = [other for other in found if _knobs(other.workload) != _knobs(work)]
    if fit is not Fit.DOES_NOT_FIT:
        rest = [other for other in rest if other.verdict.fit is not Fit.DOES_NOT_FIT]
    rest.sort(key=_needed_too_much)
    return [Way(_line(other), _taken(other.workload, state, plan)) for other in rest[:MOST_OTHERS]]


def every(state: State, plan: Plan, found: list[Alternative]) -> tuple[list[Way], int | None]:
    """All ways to run the same optimizer batch, best first, as rows below ``HEADS``; and which one is the plan's."""
    work = plan.outlook.workload
    if isinstance(work, Unknown):
        return [], None
    knobs = [_knobs(other.workload) for other in found]
    now = knobs.index(_knobs(work)) if _knobs(work) in knobs else None
    return [Way(_row(other), _taken(other.workload, state, plan)) for other in found], now


def _needed_too_much(other: Alternative) -> float:
    """Nought for what may fit: among those the order is that of the planner."""
    return other.verdict.needed_bytes or 0.0 if other.verdict.fit is Fit.DOES_NOT_FIT else 0.0


def _knobs(work: Workload) -> tuple[object, ...]:
    return work.zero_stage, work.micro_batch_size, work.accumulation_steps, work.recompute


def _taken(other: Workload, state: State, plan: Plan) -> dict[str, Any]:
    """The settings that make a workload: also what would be decided so today, for the rest may change."""
    changes: dict[str, Any] = {"method.zero_stage": other.zero_stage, **_batch(other, state, plan)}
    if other.recompute != plan.method.gradient_checkpointing:
        changes["method.gradient_checkpointing"] = other.recompute
    return changes


def _pulled(state: State, plan: Plan, lever: Lever) -> Way | None:
    """A lever as one click, unless the plan that it leads to needs as much memory."""
    changes = {f"method.{lever.key}": lever.value, **_batch(lever.workload, state, plan)}
    if lever.key == "load_in_4bit" and plan.world_size > 1:
        changes["method.zero_stage"] = 0
    try:
        verdict = plan_of(read_spec(state.set(changes).settings)).verdict
    except InvalidRequest:  # it does not go with something else that was asked
        return None
    before, after = plan.verdict.needed_bytes, verdict.needed_bytes
    if before is None or after is None or before - after < _LEAST_GAIN:
        return None
    gain = f"-{(before - after) / GIB:.1f} GiB {_WORDS[verdict.fit]:<5}"
    return Way(f"{gain}  {lever.key} = {_value(lever.value)}  ({lever.cost})", changes)


def _batch(work: Workload, state: State, plan: Plan) -> dict[str, Any]:
    """All three numbers of a batch, so that none contradicts the others; none where they are as they were asked."""
    asked = (plan.method.micro_batch_size, plan.method.gradient_accumulation_steps)
    is_auto = state.settings.get("method.micro_batch_size") == "auto"
    micro, steps = work.micro_batch_size, work.accumulation_steps
    if asked == (micro, steps) and not is_auto:
        return {}
    return {
        "method.micro_batch_size": micro,
        "method.gradient_accumulation_steps": steps,
        "method.global_batch_size": micro * steps * plan.world_size,
    }


def _impossible(work: Workload) -> str:
    if work.world_size == 1:
        return "one GPU has nobody to share its states with"
    if work.cpu_offload:
        return "cpu_offload parks sharded states only"
    return "a base of 4 bits cannot be sharded"


def _reason(verdict: Verdict, sent: float, now: float, *, chosen: bool) -> str:
    assert verdict.needed_bytes is not None
    word = "is tight" if verdict.fit is Fit.TIGHT else str(verdict.fit)
    said = f"{verdict.needed_bytes / GIB:.1f} GiB {word}"
    if chosen or verdict.fit is Fit.DOES_NOT_FIT:
        return f"{said}; {size(sent)} travel a step"
    if sent > now:
        return f"{said}, but {size(sent)} travel a step instead of {size(now)}"
    return f"{said}, and {size(sent)} travel a step instead of {size(now)}"


def _line(other: Alternative) -> str:
    work, verdict = other.workload, other.verdict
    peak = " unknown " if verdict.needed_bytes is None else f"{verdict.needed_bytes / GIB:5.1f} GiB"
    return (
        f"{peak} {_WORDS[verdict.fit]:<5}  stage {work.zero_stage}  micro batch {work.micro_batch_size:<2}  "
        f"recompute {_SAID[work.recompute]:<3}  sends {_sent(other):>8}"
    )


def _row(other: Alternative) -> str:
    work, verdict = other.workload, other.verdict
    peak = "unknown" if verdict.needed_bytes is None else f"{verdict.needed_bytes / GIB:.1f} GiB"
    stage, micro = str(work.zero_stage), str(work.micro_batch_size)
    return _COLUMNS.format(stage, micro, _SAID[work.recompute], peak, _WORDS[verdict.fit], _sent(other))


def _sent(other: Alternative) -> str:
    return "unknown" if isinstance(other.peak, Unknown) else size(other.traffic_bytes)


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
