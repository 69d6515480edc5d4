"""A tokenizer with its chat template, as far as data needs one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from kernel_launcher.protocol.files import read_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kernel_launcher.data.examples import Message


class Tokens(NamedTuple):
    """Token ids, and for each of them the characters that it stands for: first, and one past the last."""

    ids: list[int]
    offsets: list[tuple[int, int]]


class Codec(Protocol):
    """What turns a conversation into text, and text into tokens.

    Attributes:
        chat: Whether there is a chat template.
        bos: The tokens that are put before plain text by default: mostly one or none.
        eos: The token that ends plain text; None if the tokenizer has none.
    """

    @property
    def chat(self) -> bool: ...
    @property
    def bos(self) -> tuple[int, ...]: ...
    @property
    def eos(self) -> int | None: ...

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """The conversation as the template writes it.

        Raises:
            DataRefusal: The template refuses it.
        """
        ...

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text. No special token is added, and the offsets leave out no white space."""
        ...


def has_chat_template(base: Path) -> bool:
    """Whether the tokenizer in a model folder comes with a chat template, told from its files.

    Of the files that transformers knows, ``chat_template.json`` is a multimodal processor's; its tokenizers do not
    read it.
    """
    if (base / "chat_template.jinja").is_file() or any(base.glob("additional_chat_templates/*.jinja")):
        return True
    config = read_json(base / "tokenizer_config.json")
    return isinstance(config, dict) and bool(config.get("chat_template"))
