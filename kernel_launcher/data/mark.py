"""Which characters of a row are trained.

A conversation is rendered once as a whole. An answer starts where the template's prompt for it ends (the turns before
it, with a generation prompt) and ends with the template's end of turn, which the model must learn to write; white space
that follows is the template's. Both places are found by comparing rendered beginnings of the conversation with the
whole, so no template needs to mark its answers. A template that renders a turn differently once others follow, as
those do that drop earlier thoughts, has no such place: the row is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from os.path import commonprefix
from typing import TYPE_CHECKING, Literal, NamedTuple

from kernel_launcher.data.examples import Message, Messages, PromptCompletion, Text
from kernel_launcher.data.faults import CODE, DataRefusal, brief
from kernel_launcher.errors import Fault, InvalidRequest

if TYPE_CHECKING:
    from kernel_launcher.data.codec import Codec
    from kernel_launcher.data.examples import Turns

LossOn = Literal["answers", "last_answer", "all"]
# The first line that a template writes after an answer, with the line ends before it.
_FIRST_LINE = re.compile(r"\s*[^\n]*")
_ASKED = Message("user", "0")


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
            raise _refused(
                "The tokenizer has no end-of-text token, so plain text would have no end.", "Give messages."
            )
        if isinstance(example, Text):
            return Marked(example.text, ((0, len(example.text)),), plain=True)
        text = example.prompt + example.completion
        start = 0 if self._loss_on == "all" else len(example.prompt)
        return Marked(text, ((start, len(text)),), plain=True)

    def _chat(self, example: Messages) -> Marked:
        if not self._codec.chat:
            fix = "Use the instruct model of this family, or give prompt and completion, or text."
            raise _refused("These rows are chats, and the model has no chat template.", fix)
        turns = example.messages
        whole = self._codec.render(turns, add_generation_prompt=False)
        if self._loss_on == "all":
            return Marked(whole, ((0, len(whole)),), plain=False)
        answers = [i for i, turn in enumerate(turns) if i >= example.context and turn.role == "assistant"]
        if self._loss_on == "last_answer":
            answers = answers[-1:]
        return Marked(whole, tuple([self._answer(turns, i, whole) for i in answers]), plain=False)

    def _answer(self, turns: Turns, index: int, whole: str) -> tuple[int, int]:
        prompt = self._prompt(turns[:index])
        _require_start(whole, prompt, index)
        is_last = index == len(turns) - 1
        until = whole if is_last else self._codec.render(turns[: index + 1], add_generation_prompt=False)
        if not until.endswith(self._ending.text):
            raise DataRefusal(f"Turn {index + 1}: the chat template does not end it as it ends other answers.")
        end = len(until) - len(self._ending.text) + self._ending.end_of_turn
        _require_start(whole, until[:end], index)
        return len(prompt), end

    def _prompt(self, turns: Turns) -> str:
        """What stands before an answer to these turns."""
        if turns:
            return self._codec.render(turns, add_generation_prompt=True)
        # No template renders an empty conversation: what two opening answers share is what stands before them.
        return commonprefix(
            [self._codec.render([Message("assistant", word)], add_generation_prompt=False) for word in "01"]
        )

    @cached_property
    def _ending(self) -> _Ending:
        """What two conversations that differ in the last answer share at their end."""
        pair = [
            self._codec.render([_ASKED, Message("assistant", word)], add_generation_prompt=False) for word in "01"
        ]
        tail = commonprefix([text[::-1] for text in pair])[::-1]
        first_line = _FIRST_LINE.match(tail)
        return _Ending(tail, len(first_line[0].rstrip()) if first_line else 0)


def _require_start(whole: str, beginning: str, index: int) -> None:
    if whole.startswith(beginning):
        return
    at = max(0, len(commonprefix([whole, beginning])) - 10)
    raise DataRefusal(
        f"Turn {index + 1}: the chat template writes {brief(beginning[at:])!r} when the conversation stops there, and "
        f"{brief(whole[at:])!r} when it goes on, so the answer has no fixed place. Give one row for each answer, or set "
        'loss_on to "last_answer" or "all".'
    )


def _refused(reason: str, fix: str) -> InvalidRequest:
    return InvalidRequest([Fault("dataset", "", reason, fix, CODE)])
