"""A tokenizer with its chat template, as far as data needs one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernel_launcher.data.rows.examples import Message


class Tokens(NamedTuple):
    """Token ids, and for each of them the characters that it stands for: first, and one past the last."""

    ids: list[int]
    offsets: list[tuple[int, int]]


class Codec(Protocol):
    """What turns a conversation into text, and text into tokens.

    Attributes:
        chat: Whether there is a chat template.
        tagged: Whether the template marks by itself what the model writes.
        bos: The tokens that are put before plain text by default: mostly one or none.
        eos: The token that ends plain text; None if the tokenizer has none.
        control: The special tokens, by their text: taken whole wherever they stand, and no words of it. Added tokens
            that are words, such as ``<think>`` or runs of spaces, are not among them.
    """

    @property
    def chat(self) -> bool: ...
    @property
    def tagged(self) -> bool: ...
    @property
    def bos(self) -> tuple[int, ...]: ...
    @property
    def eos(self) -> int | None: ...
    @property
    def control(self) -> Mapping[str, int]: ...

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """The conversation as the template writes it.

        Raises:
            DataRefusal: The template refuses it.
        """
        ...

    def render_tagged(self, messages: Sequence[Message]) -> tuple[str, tuple[tuple[int, int], ...]]:
        """The conversation, and the characters of it inside the template's generation tags; as ``render``."""
        ...

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text. No special token is added, and the offsets leave out no white space."""
        ...

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token that is a part of a character; empty if the vocabulary does not say."""
        ...
