"""Which characters of a row are trained.

A conversation is rendered once as a whole. An answer starts where the template's prompt for it ends (the turns before
it, with a generation prompt) and ends with the template's end of turn, which a model must learn to write; white space
that the template adds after that is not trained. Both places are found by comparing rendered beginnings of the
conversation, so that no template needs to mark its answers, and both beginnings must be in the whole: a template that
renders a turn differently once others follow (reasoning models drop earlier thoughts) has no honest place for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from os.path import commonprefix
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from kernel_launcher.data.examples import Message, Messages, PromptCompletion, Text
from kernel_launcher.data.faults import CODE, DataRefusal
from kernel_launcher.errors import Fault, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernel_launcher.data.examples import Turns

    LossOn = Literal["answers", "last_answer", "all"]
    Span = tuple[int, int]

# The first line that the template writes after an answer, however many line ends come before it.
_END_OF_TURN = re.compile(r"\s*[^\n]*")


class Tokens(NamedTuple):
    """Token ids, and for each the characters of the text that it stands for: start and end."""

    ids: list[int]
    offsets: list[tuple[int, int]]


class Codec(Protocol):
    """A tokenizer with its chat template, as far as data needs it.

    Attributes:
        chat: Whether there is a chat template.
        bos: What the tokenizer puts before plain text by default: mostly one token or none.
        eos: The token that ends plain text; None if the tokenizer has none.
    """

    chat: bool
    bos: tuple[int, ...]
    eos: int | None

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """The conversation as text.

        Raises:
            DataRefusal: The template refuses it.
        """

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Tokens of each text, with no special token added; offsets cover all white space."""


@dataclass(frozen=True, slots=True)
class Marked:
    """The text of a row, and what of it is trained.

    Attributes:
        text: All of it.
        spans: The trained characters, in order, without overlap.
        open_ended: Plain text, which gets its BOS and EOS from us; a template has written its own.
    """

    text: str
    spans: tuple[Span, ...]
    open_ended: bool


def mark(example: Messages | PromptCompletion | Text, codec: Codec, loss_on: LossOn) -> Marked:
    """Find the trained characters of one example.

    Plain text is trained as a whole, whatever ``loss_on`` says: no part of it is an answer.

    Raises:
        DataRefusal: The template refuses the row, or renders its beginnings differently.
        InvalidRequest: A chat without a chat template.
    """
    if isinstance(example, Text):
        return Marked(example.text, ((0, len(example.text)),), open_ended=True)
    if isinstance(example, PromptCompletion):
        text = example.prompt + example.completion
        start = 0 if loss_on == "all" else len(example.prompt)
        return Marked(text, ((start, len(text)),), open_ended=True)
    if not codec.chat:
        raise _no_chat_template()
    whole = codec.render(example.messages, add_generation_prompt=False)
    if loss_on == "all":
        return Marked(whole, ((0, len(whole)),), open_ended=False)
    answers = [i for i, turn in enumerate(example.messages) if i >= example.context and turn.role == "assistant"]
    if loss_on == "last_answer":
        answers = answers[-1:]
    return Marked(whole, tuple(_answer(example.messages, i, whole, codec) for i in answers), open_ended=False)


def _answer(messages: Turns, index: int, whole: str, codec: Codec) -> Span:
    """The characters of one answer in the rendered conversation, with its end of turn."""
    start = _beginning(messages, index, codec)
    tail, end_of_turn = _ending(codec)
    last = index == len(messages) - 1
    until = whole if last else codec.render(messages[: index + 1], add_generation_prompt=False)
    ...
