"""What is said of a run that cannot learn, or no longer does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernel_launcher.worker.weights import Change

_LEAST_CHANGED = 0.1
_LEAST_RATIO = 1e-6
# At the default rates the largest update is 0.003 of the weights (0.009 for LoRA on SmolLM2-135M), and 0.09 at ten
# times LoRA's. At a hundred times, 0.94, the loss went from 3.9 to 7.9 in six steps. An adapter's ratio grows with
# the root of the width, as its weights begin smaller there: at a width of 8,192, 0.04 and 0.4.
_MOST_RATIO = 0.5
_NAMED = 3
# No batch of a run that goes on has a gradient of exactly zero, unless nothing is left to learn: a loss that has
# underflowed, or a hinge that is passed.
_WITHOUT_GRADIENT = 3
_NOTHING_LEFT = 1e-3
# The first loss is that of one batch, maybe an easy row, so one hard row after it says nothing; ten do, each half as
# far off as guessing. A pretrained model's loss is below that on any text that it can read.
_HIGH_STEPS = 10
_HIGH, _OF_GUESSING = 1.5, 0.5


def complaints(changes: Sequence[Change], rounds_away: bool, learning_rate: float) -> list[str]:
    """Why a run cannot learn as it is set, from the changes of its first steps at full learning rate.

    Args:
        changes: At least one.
        rounds_away: Whether what is smaller than half a step of a weight's format is lost.
        learning_rate: The peak.
    """
    changed = sum(change.changed for change in changes) / len(changes)
    ratio = sum(change.ratio for change in changes) / len(changes)
    unreached = sorted(frozenset.intersection(*(change.unreached for change in changes)))
    adapters = [name for name in unreached if "lora_" in name]
    if not any(change.reached for change in changes):
        return ["no update changes any weight: no gradient reaches them, and this run learns nothing."]
    found = []
    if rounds_away and changed < _LEAST_CHANGED:
        found.append(
            f"rounding loses most of the training: an update changes {changed:.1%} of the weights that have a "
            f"gradient, for steps of learning_rate = {learning_rate:g} are too small for bfloat16. "
            'Use precision = "bf16_mixed" or lora_rank, whose trained weights are float32.'
        )
    if ratio < _LEAST_RATIO:
        found.append(
            f"an update moves the weights by {ratio:.1g} of their size: at learning_rate = {learning_rate:g} this "
            "run hardly learns. Raise learning_rate."
        )
    if adapters:
        few = ", ".join(adapters[:_NAMED])
        found.append(
            f"{len(adapters)} adapter tensors did not change in {len(changes)} steps: no gradient reaches them "
            f"({few}{', …' if len(adapters) > _NAMED else ''}). Check lora_target_modules."
        )
    return found


def overshoots(change: Change, step: int, learning_rate: float) -> str | None:
    """What is said of an update that is too large; one of weights that are all zero has no size to compare with."""
    if not _MOST_RATIO < change.ratio < float("inf"):
        return None
    return (
        f"the update of step {step} is {change.ratio:,.2f} times the size of the weights that it changes: at "
        f"learning_rate = {learning_rate:g} it undoes what they have learned. Lower learning_rate."
    )


class Course:
    """Loss and gradient from step to step: tells once of each way in which a run no longer learns.

    Args:
        guessing: The loss of a model to which every token is as likely as any other.
        learning_rate: The peak.
    """

    def __init__(self, guessing: float, learning_rate: float) -> None:
        self._guessing = guessing
        self._advice = f"Lower learning_rate = {learning_rate:g}."
        self._first: float | None = None
        self._had_gradient = False
        self._no_gradient = _Streak(_WITHOUT_GRADIENT)
        self._high = _Streak(_HIGH_STEPS)

    def see(self, loss: float, gradient_norm: float) -> Iterator[str]:
        """What there is to say after one more step."""
        if self._first is None:
            self._first = loss
        self._had_gradient |= gradient_norm > 0
        if self._no_gradient.is_reached(self._had_gradient and gradient_norm == 0 and loss > _NOTHING_LEFT):
            yield (
                f"for {_WITHOUT_GRADIENT} steps every gradient was zero, with the loss at {loss:.4g}: "
                f"this run learns nothing more. {self._advice}"
            )
        limit = max(_HIGH * self._first, _OF_GUESSING * self._guessing)
        if self._high.is_reached(loss > limit):
            yield (
                f"for {_HIGH_STEPS} steps the loss was above {limit:.3g}, and it began at {self._first:.3g}: the "
                f"updates do harm. {self._advice}"
            )


class _Streak:
    """Something that holds for so many steps in a row."""

    def __init__(self, length: int) -> None:
        self._left = self._length = length
        self._was_reached = False

    def is_reached(self, holds: bool) -> bool:
        """Count one more step; true for the first streak of that length, at its end."""
        self._left = self._left - 1 if holds else self._length
        if self._left or self._was_reached:
            return False
        self._was_reached = True
        return True
