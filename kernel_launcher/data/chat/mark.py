"""Which characters of a row are trained.

A conversation is rendered once as a whole. An answer starts where the template's prompt for it ends (the turns before
it, with a generation prompt) and ends with the template's end of turn, which the model must learn to write; the white
space after that is the template's. Both places are found by comparing rendered beginnings of the conversation with
the whole, so no template needs to mark its answers. A template that renders a turn differently once others follow, as
those do that drop earlier thoughts, has no such place: its generation tags say where the answers are, or the row is
refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from kernel_launcher.data.chat.compare import shared, sides
from kernel_launcher.data.rows.examples import Message, Messages, Preference, PromptCompletion, Text
from kernel_launcher.data.rows.faults import DataRefusal, brief, no_chat_template, refused

if TYPE_CHECKING:
    from kernel_launcher.data.chat.codec import Codec
    from kernel_launcher.data.rows.examples import Example, Turns

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
    """What the template writes after a last answer: all of it, and how much of that is the end of turn.

    Where it writes none (GLM-4), what ends an answer is the control token that opens the user's next turn. It is
    borrowed for the end of a conversation, where it is what the model has to write.
    """

    text: str
    end_of_turn: int
    borrowed: str


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

    def pair(self, example: Preference) -> tuple[Marked, Marked]:
        """The texts of both sides, the preferred one first, each with its answer marked, whatever ``loss_on`` is.

        Raises:
            DataRefusal: As ``mark``, or the sides differ by more than one answer.
            InvalidRequest: As ``mark``.
        """
        chosen, rejected = sides(example)
        marker = Marker(self._codec, "answers") if self._loss_on == "all" else self
        return marker.mark(chosen), marker.mark(rejected)

    def prompt(self, turns: Turns) -> str:
        """The text that is sent at inference for an answer to these turns, which may be none.

        Raises:
            DataRefusal: The template refuses them.
            InvalidRequest: There is no template.
        """
        if not self._codec.chat:
            raise no_chat_template()
        if turns:
            return self._codec.render(turns, add_generation_prompt=True)
        # No template renders an empty conversation: what two opening answers share stands before both.
        one, other = (self._render((Message("assistant", word),)) for word in "01")
        return one[: shared(one, other)]

    def inference_prompt(self, example: Example) -> str:
        """The text that is sent at inference for the last answer of an example; before plain text it is empty."""
        if isinstance(example, Preference):
            example = sides(example)[0]
        if isinstance(example, Text):
            return ""
        if isinstance(example, PromptCompletion):
            return example.prompt
        last = max(i for i, turn in enumerate(example.messages) if turn.role == "assistant")
        return self.prompt(example.messages[:last])

    @cached_property
    def stop_token(self) -> int | None:
        """The control token with which an answer of a chat ends: generation has to stop at it. None if none does."""
        try:
            end = self._ending.text[: self._ending.end_of_turn] if self._codec.chat else ""
        except DataRefusal:  # the template takes no chat; each row will say so
            return None
        last = self._codec.encode([end])[0].ids[-1] if end else None
        return last if last in self._codec.control.values() else None

    def _chat(self, example: Messages) -> Marked:
        if not self._codec.chat:
            raise no_chat_template()
        turns = example.messages
        whole = self._render(turns)
        if turns[-1].role == "assistant":
            whole += self._ending.borrowed
        if self._loss_on == "all":
            return Marked(whole, ((0, len(whole)),), plain=False)
        answers = [i for i, turn in enumerate(turns) if i >= example.context and turn.role == "assistant"]
        if self._loss_on == "last_answer":
            answers = answers[-1:]
        try:
            return Marked(whole, tuple([self._answer(turns, i, whole) for i in answers]), plain=False)
        except DataRefusal:
            if not self._codec.tagged:
                raise
            return self._tagged(turns, answers)

    def _answer(self, turns: Turns, index: int, whole: str) -> tuple[int, int]:
        prompt = self.prompt(turns[:index])
        until = whole if index == len(turns) - 1 else self._render(turns[: index + 1]) + self._ending.borrowed
        if not until.endswith(self._ending.text):
            raise DataRefusal(f"turn {index + 1}: the chat template does not end it as it ends other answers.")
        answered = until[: len(until) - len(self._ending.text) + self._ending.end_of_turn]
        for beginning in (prompt, answered):
            if not whole.startswith(beginning):
                raise DataRefusal(_no_fixed_place(turns, index, beginning, whole))
        return len(prompt), len(answered)

    def _tagged(self, turns: Turns, answers: list[int]) -> Marked:
        """Marks what the template itself says the model writes, and the end of turn where it leaves that out."""
        whole, spans = self._codec.render_tagged(turns)
        spoken = [i for i, turn in enumerate(turns) if turn.role == "assistant"]
        if len(spans) != len(spoken):
            raise DataRefusal(
                f"the generation tags of the chat template mark {len(spans)} places, and there are "
                f"{len(spoken)} assistant turns."
            )
        end = self._ending.text[: self._ending.end_of_turn]
        marked = [span for i, span in zip(spoken, spans, strict=True) if i in answers]
        closed = [(first, last + len(end) * whole.startswith(end, last)) for first, last in marked]
        return Marked(whole, tuple(closed), plain=False)

    @cached_property
    def _ending(self) -> _Ending:
        """What two conversations that differ in the last answer share at their end."""
        asked = Message("user", "0")
        one, other = (self._render((asked, Message("assistant", word))) for word in "01")
        text = one[len(one) - shared(one[::-1], other[::-1]) :]
        if first_line := _FIRST_LINE.match(text)[0].rstrip():  # type: ignore[index] # it matches the empty text, too
            return _Ending(text, len(first_line), "")
        longer = self._render((asked, Message("assistant", "0"), asked))
        following = longer[len(one) :] if longer.startswith(one) else ""
        borrowed = max((name for name in self._codec.control if following.startswith(name)), key=len, default="")
        return _Ending(text + borrowed, len(text + borrowed) if borrowed else 0, borrowed)

    def _render(self, turns: Turns) -> str:
        return self._codec.render(turns, add_generation_prompt=False)


def _no_fixed_place(turns: Turns, index: int, beginning: str, whole: str) -> str:
    at = max(0, shared(beginning, whole) - 10)
    if index < len(turns) - 1:
        fix = 'Give one row for each answer, set loss_on to "last_answer", or name another chat_template.'
    else:
        fix = 'Name another chat_template, give prompt and completion as plain text, or set loss_on to "all".'
    return (
        f"turn {index + 1}: the chat template writes {brief(beginning[at:])!r} where the conversation stops there, "
        f"and {brief(whole[at:])!r} where it goes on, so nothing says which tokens are the answer. {fix}"
    )
