"""What the peak has to say to the rule: another stage where the rule's does not fit, and the largest micro batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_launcher.planner.alternatives import LARGEST_MICRO_BATCH
from kernel_launcher.planner.verdict import Fit

if TYPE_CHECKING:
    from collections.abc import Collection

    from kernel_launcher.planner.outlook import Outlook
    from kernel_launcher.planner.verdict import Verdict
    from kernel_launcher.planner.workload import Stage

DEFAULT_GLOBAL_BATCH = 16
_STAGES: tuple[Stage, ...] = (0, 2, 3)  # those with the least traffic first


def corrected(stage: Stage, outlook: Outlook, runnable: Collection[Stage]) -> tuple[Stage, str]:
    """The stage to take in place of the rule's, and a line for the trace; empty where the rule's stays.

    Args:
        stage: The rule's choice.
        outlook: The job.
        runnable: Stages that may be taken.
    """
    ruled = outlook.verdict(zero_stage=stage)
    if ruled.fit is not Fit.DOES_NOT_FIT:
        return stage, ""
    others = {other: outlook.verdict(zero_stage=other) for other in _STAGES if other != stage}
    for wanted in (Fit.FITS, Fit.TIGHT):
        for other, verdict in others.items():
            if verdict.fit is wanted:
                why = f"the rule's zero_stage = {stage} {_short(ruled)}, {other} {_short(verdict)}"
                if other in runnable:
                    return other, f"corrected: zero_stage = {other}: {why}."
                return stage, f"kept: zero_stage = {stage}: {why}, but is not in this release."
    return stage, f"kept: zero_stage = {stage} {_short(ruled)}, nor does any other."


def micro_candidates(ranks: int, accumulation: int | None, total: int | None) -> tuple[list[int], int | None]:
    """The micro batches to try, smallest first, and the global batch that they must divide.

    Args:
        ranks: Number of ranks.
        accumulation: Micro-batches a step, if that is set.
        total: The global batch, if that is set; with neither, 16, or the next multiple of the ranks.
    """
    if total is None and accumulation is not None:
        return list(range(1, LARGEST_MICRO_BATCH + 1)), None
    whole = total or -(-DEFAULT_GLOBAL_BATCH // ranks) * ranks
    each = whole // ranks
    if accumulation is not None:
        return [each // accumulation], whole
    return [micro for micro in range(1, min(each, LARGEST_MICRO_BATCH) + 1) if each % micro == 0], whole


def largest_micro(candidates: list[int], rows: int | None, outlook: Outlook) -> tuple[int, str]:
    """The largest micro batch that fits, and why it is this one; the smallest where none does.

    Args:
        candidates: Micro batches, smallest first; memory grows with them.
        rows: Rows of a rank in an optimizer step, if they are fixed: the rest is accumulated.
        outlook: The job.
    """
    low, high = 0, len(candidates)
    fit = Fit.FITS
    while low < high:
        middle = (low + high) // 2
        micro = candidates[middle]
        steps = rows // micro if rows else 1
        fit = outlook.verdict(micro_batch_size=micro, accumulation_steps=steps).fit
        low, high = (middle + 1, high) if fit is Fit.FITS else (low, middle)
    if low:
        return candidates[low - 1], "the largest that fits."
    if fit is Fit.CANNOT_SAY:
        return candidates[0], "the least: the memory model cannot say what fits."
    return candidates[0], "the least, and even that does not fit for sure."


def _short(verdict: Verdict) -> str:
    """A verdict in the middle of a sentence."""
    word = "is tight" if verdict.fit is Fit.TIGHT else verdict.fit
    return f"{word}{str(verdict).removeprefix(verdict.fit.upper()).partition(';')[0]}"
