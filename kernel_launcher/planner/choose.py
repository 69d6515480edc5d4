"""What the peak has to say to the rule: another stage where the rule's does not fit, and the largest micro batch."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from kernel_launcher.planner.alternatives import LARGEST_MICRO_BATCH
from kernel_launcher.planner.verdict import Fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel_launcher.planner.outlook import Outlook
    from kernel_launcher.planner.verdict import Verdict
    from kernel_launcher.planner.workload import Stage

DEFAULT_GLOBAL_BATCH = 16
_STAGES: tuple[Stage, ...] = (0, 2, 3)  # those with the least traffic first


class Fitted(NamedTuple):
    """A micro batch, the global batch that it is for (None: it follows from the rest), and why it is this one."""

    micro: int
    total: int | None
    reason: str


def corrected(stage: Stage, outlook: Outlook) -> tuple[Stage, str]:
    """The stage to take in place of the rule's, and a line for the trace; empty where the rule's stays.

    Args:
        stage: The rule's choice.
        outlook: The job.
    """
    ruled = outlook.verdict(zero_stage=stage)
    if ruled.fit is not Fit.DOES_NOT_FIT:
        return stage, ""
    others = {other: outlook.verdict(zero_stage=other) for other in _STAGES if other != stage}
    for wanted in (Fit.FITS, Fit.TIGHT):
        for other, verdict in others.items():
            if verdict.fit is wanted:
                why = f"the rule's zero_stage = {stage} {_short(ruled)}, {other} {_short(verdict)}"
                return other, f"corrected: zero_stage = {other}: {why}."
    return stage, f"kept: zero_stage = {stage} {_short(ruled)}, nor does any other."


def fit_micro_batch(ranks: int, accumulation: int | None, total: int | None, outlook: Outlook) -> Fitted:
    """The largest micro batch, up to 64, whose verdict is "fits"; the least where none is.

    Args:
        ranks: Number of ranks.
        accumulation: Micro-batches a step, if that is set.
        total: The global batch, if that is set; with neither, 16, or the next multiple of the ranks.
        outlook: The job.
    """
    if accumulation is not None and total is None:
        fits = _largest(range(1, LARGEST_MICRO_BATCH + 1), outlook)
        return Fitted(fits or 1, None, _reason(fits, outlook))
    total = total or -(-DEFAULT_GLOBAL_BATCH // ranks) * ranks
    rows = total // ranks
    if accumulation is not None:
        return Fitted(rows // accumulation, total, "what the other two leave.")
    # From the top: memory does not only grow with it, as a step of one micro-batch keeps no gradients in between.
    tried = (micro for micro in range(min(rows, LARGEST_MICRO_BATCH), 0, -1) if rows % micro == 0)
    fits = next(
        (micro for micro in tried if _fits(outlook, micro_batch_size=micro, accumulation_steps=rows // micro)), 0
    )
    return Fitted(fits or 1, total, _reason(fits, outlook))


def _largest(candidates: Sequence[int], outlook: Outlook) -> int:
    """The largest that fits, 0 if none does; memory grows with it."""
    return bisect_left(candidates, True, key=lambda micro: not _fits(outlook, micro_batch_size=micro))


def _fits(outlook: Outlook, **changes: int) -> bool:
    return outlook.verdict(**changes).fit is Fit.FITS


def _reason(fits: int, outlook: Outlook) -> str:
    if fits:
        return "the largest that fits."
    if outlook.verdict().fit is Fit.CANNOT_SAY:
        return "the least: the memory model cannot say what fits."
    return "the least, and even that does not fit for sure."


def _short(verdict: Verdict) -> str:
    """A verdict in the middle of a sentence."""
    word = "is tight" if verdict.fit is Fit.TIGHT else verdict.fit
    return f"{word}{str(verdict).removeprefix(verdict.fit.upper()).partition(';')[0]}"
