"""Which characters of a row are trained.

A conversation is rendered once as a whole. An answer starts where the template's prompt for it ends (the turns before
it, with a generation prompt) and ends with the template's end of turn, which the model must learn to write; the white
space after that is the template's. Both places are found by comparing rendered beginnings of the conversation with
the whole, so no template needs to mark its answers. A template that renders a turn differently once others follow, as
those do that drop earlier thoughts, has no such place: the row is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from kernel_launcher.data.examples import Message, Messages, PromptCompletion, Text
from kernel_launcher.data.faults import DataRefusal, brief, no_chat_template, refused

if TYPE_CHECKING:
    from kernel_launcher.data.codec import Codec
    from kernel_launcher.data.examples import Turns

LossOn = Literal["answers", "last_answer", "all"]
# The first line that a template writes after an answer, with the line ends before it.
_FIRST_LINE = re.compile(r"\s*[^\n]*")


@dataclass(frozen=True, slots=True)
class Marked:
    """The text of a row, and what of it is trained.

    Attributes:
        text: All of it.
        spans: The trained characters, in order, without overlap.
        plain: Plain text gets its BOS and EOS from us; a template has written its own.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    plain: bool


class _Ending(NamedTuple):
    """What the template writes after a last answer: all of it, and how much of that is the end of turn."""

    text: str
    end_of_turn: int


class Marker:
    """Marks examples for one tokenizer.

    Args:
        codec: The tokenizer with its template.
        loss_on: ``answers``: each answer of a chat, or the completion. ``last_answer``: the last of them. ``all``:
            everything. Plain text is always trained as a whole: no part of it is an answer.
    """

    def __init__(self, codec: Codec, loss_on: LossOn) -> None:
        self._codec = codec
        self._loss_on = loss_on

    def mark(self, example: Messages | PromptCompletion | Text) -> Marked:
        """Find the trained characters of one example.

        Raises:
            DataRefusal: The template refuses the row, or has no fixed place for an answer.
            InvalidRequest: The tokenizer lacks what rows of this kind need.
        """
        if isinstance(example, Messages):
            return self._chat(example)
        if self._codec.eos is None:
            raise refused(
                "the tokenizer has no end-of-text token, so plain text would have no end.", "Give messages."
            )
        if isinstance(example, Text):
            return Marked(example.text, ((0, len(example.text)),), plain=True)
        text = example.prompt + example.completion
        start = 0 if self._loss_on == "all" else len(example.prompt)
        return Marked(text, ((start, len(text)),), plain=True)

    def _chat(self, example: Messages) -> Marked:
        if not self._codec.chat:
            raise no_chat_template()
        turns = example.messages
        whole = self._render(turns)
        if self._loss_on == "all":
            return Marked(whole, ((0, len(whole)),), plain=False)
        answers = [i for i, turn in enumerate(turns) if i >= example.context and turn.role == "assistant"]
        if self._loss_on == "last_answer":
            answers = answers[-1:]
        return Marked(whole, tuple([self._answer(turns, i, whole) for i in answers]), plain=False)

    def _answer(self, turns: Turns, index: int, whole: str) -> tuple[int, int]:
        prompt = self._prompt(turns[:index])
        until = whole if index == len(turns) - 1 else self._render(turns[: index + 1])
        if not until.endswith(self._ending.text):
            raise DataRefusal(f"turn {index + 1}: the chat template does not end it as it ends other answers.")
        answered = until[: len(until) - len(self._ending.text) + self._ending.end_of_turn]
        for beginning in (prompt, answered):
            if not whole.startswith(beginning):
                raise DataRefusal(_no_fixed_place(turns, index, beginning, whole))
        return len(prompt), len(answered)

    def _prompt(self, turns: Turns) -> str:
        """What stands before an answer to these turns."""
        if turns:
            return self._codec.render(turns, add_generation_prompt=True)
        # No template renders an empty conversation: what two opening answers share stands before both.
        one, other = (self._render((Message("assistant", word),)) for word in "01")
        return one[: _shared(one, other)]

    @cached_property
    def _ending(self) -> _Ending:
        """What two conversations that differ in the last answer share at their end."""
        one, other = (self._render((Message("user", "0"), Message("assistant", word))) for word in "01")
        text = one[len(one) - _shared(one[::-1], other[::-1]) :]
        first_line = _FIRST_LINE.match(text)
        return _Ending(text, len(first_line[0].rstrip()) if first_line else 0)

    def _render(self, turns: Turns) -> str:
        return self._codec.render(turns, add_generation_prompt=False)


def _shared(one: str, other: str) -> int:
    """How many characters two texts share at their start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _no_fixed_place(turns: Turns, index: int, beginning: str, whole: str) -> str:
    at = max(0, _shared(beginning, whole) - 10)
    if index < len(turns) - 1:
        fix = 'Give one row for each answer, or set loss_on to "last_answer".'
    else:
        fix = 'Give prompt and completion as plain text, or set loss_on to "all".'
    return (
        f"turn {index + 1}: the chat template writes {brief(beginning[at:])!r} where the conversation stops there, "
        f"and {brief(whole[at:])!r} where it goes on, so nothing says which tokens are the answer. {fix}"
    )
