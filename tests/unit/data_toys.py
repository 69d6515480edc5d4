"""A tokenizer small enough to see through: words, single characters and control tokens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernel_launcher.data.chat.codec import Tokens
from kernel_launcher.data.rows.faults import DataRefusal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import ClassVar

    from kernel_launcher.data.rows.examples import Message

_TOKEN = re.compile(r"<\|\w+\|>|\w+|\W", re.DOTALL)


class ToyCodec:
    """ChatML, and a new id for each new word."""

    chat = True
    tagged = False
    control: ClassVar[dict[str, int]] = {}

    def __init__(self, bos: tuple[int, ...] = ()) -> None:
        self._words: dict[str, int] = {}
        self.bos = bos
        self.eos = self._id("<|end|>")

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        text = "".join(self.turn(message, last=message is messages[-1]) for message in messages)
        return text + "<|assistant|>\n" * add_generation_prompt

    def turn(self, message: Message, *, last: bool) -> str:
        return f"<|{message.role}|>\n{message.content}<|end|>\n"

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        return [self._tokens(text) for text in texts]

    def words(self, ids: Sequence[int]) -> list[str]:
        known = list(self._words)
        return [known[token] for token in ids]

    def _tokens(self, text: str) -> Tokens:
        found = list(_TOKEN.finditer(text))
        return Tokens([self._id(match[0]) for match in found], [match.span() for match in found])

    def _id(self, word: str) -> int:
        return self._words.setdefault(word, len(self._words))


class ForgetfulCodec(ToyCodec):
    """Writes thoughts into the last turn only, as templates of reasoning models do."""

    def turn(self, message: Message, *, last: bool) -> str:
        thought = "<|think|>" if last and message.role == "assistant" else ""
        return f"<|{message.role}|>\n{thought}{message.content}<|end|>\n"


class ClosingCodec(ToyCodec):
    """Writes another token at the end of a whole conversation, as Phi does."""

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        text = super().render(messages, add_generation_prompt=add_generation_prompt)
        return text if add_generation_prompt else f"{text}<|endoftext|>"


class SystemlessCodec(ToyCodec):
    """Refuses a system turn, as Gemma does."""

    def turn(self, message: Message, *, last: bool) -> str:
        if message.role == "system":
            raise DataRefusal("the chat template does not take it: System role not supported.")
        return super().turn(message, last=last)
