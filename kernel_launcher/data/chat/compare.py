"""A comparison as two examples that share what they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_launcher.data.rows.examples import Messages, PromptCompletion
from kernel_launcher.data.rows.faults import DataRefusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel_launcher.data.rows.examples import Preference, Turns


def sides(example: Preference) -> tuple[Messages, Messages] | tuple[PromptCompletion, PromptCompletion]:
    """The preferred and the other side, each with the whole prompt before its answer.

    Without a prompt it is what both sides share at their start, as TRL's ``extract_prompt`` has it: whole turns of a
    chat, characters of plain text, but for a space before the answers, which is theirs.

    Raises:
        DataRefusal: A chat differs by more than one answer: whatever else followed would be in the loss, too.
    """
    prompt, chosen, rejected = example.prompt, example.chosen, example.rejected
    if isinstance(chosen, str) and isinstance(rejected, str):
        if prompt is None:
            at = shared(chosen, rejected)
            at -= chosen[at - 1 : at] == " "
            return PromptCompletion(chosen[:at], chosen[at:]), PromptCompletion(rejected[:at], rejected[at:])
        assert isinstance(prompt, str)
        return PromptCompletion(prompt, chosen), PromptCompletion(prompt, rejected)
    assert isinstance(chosen, tuple)
    assert isinstance(rejected, tuple)
    given = prompt if isinstance(prompt, tuple) else ()
    at = min(shared(chosen, rejected), len(chosen) - 1, len(rejected) - 1)
    return (
        Messages(given + chosen, len(given) + _one_answer(chosen, at, "chosen")),
        Messages(given + rejected, len(given) + _one_answer(rejected, at, "rejected")),
    )


def shared(one: Sequence[object], other: Sequence[object]) -> int:
    """How many items, or characters, two sequences of one type share at their start."""
    # Slices are compared in C: two million characters take 1 ms, one by one 100 ms.
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _one_answer(turns: Turns, at: int, side: str) -> int:
    own = [turn.role for turn in turns[at:]]
    if own != ["assistant"]:
        raise DataRefusal(
            f"after the turns that chosen and rejected share, {side} has {', '.join(own)}: only one answer of each "
            "can be compared. Put what was said before it into both, or into the prompt."
        )
    return at
