"""The tokenizer of a model folder, from its files and without torch: the same tokens as transformers makes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from kernel_launcher.data.chat.codec import Tokens
from kernel_launcher.data.chat.pieces import bytes_named
from kernel_launcher.data.chat.template import Template
from kernel_launcher.data.chat.templates import default_template, read_template, templates_in
from kernel_launcher.data.rows.faults import CODE
from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.protocol.files import read_json
from kernel_launcher.secrets import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tokenizers import Tokenizer

    from kernel_launcher.data.chat.template import Spans
    from kernel_launcher.data.rows.examples import Message


class TokenizersCodec:
    """A tokenizer of the ``tokenizers`` library, and a chat template.

    Args:
        tokenizer: It becomes the codec's own, and is changed.
        template: None for a base model.
        eos: The token that ends plain text.
    """

    def __init__(self, tokenizer: Tokenizer, template: Template | None, eos: int | None) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.bos = _bos(tokenizer)
        # A post-processor that trims (Llama 3 has one) leaves spaces out of the offsets, and a token of spaces alone
        # without any place. With no special tokens to add, it does nothing else.
        tokenizer.post_processor = None
        self._tokenizer = tokenizer
        self._template = template
        self.chat = template is not None
        self.tagged = template is not None and template.tagged
        self.eos = eos

    @cached_property
    def control(self) -> Mapping[str, int]:
        """The tokens that are taken whole wherever they stand in a text and are no words of it, by their text."""
        added = self._tokenizer.get_added_tokens_decoder()
        return {token.content: number for number, token in added.items() if token.special}

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """The conversation as the template writes it; raises DataRefusal where the template does not take it."""
        assert self._template is not None
        return self._template.render(messages, add_generation_prompt=add_generation_prompt)

    def render_tagged(self, messages: Sequence[Message]) -> tuple[str, Spans]:
        """The conversation, and the characters of it inside the template's generation tags; as ``render``."""
        assert self._template is not None
        return self._template.render_tagged(messages)

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text, as transformers gives them with ``add_special_tokens=False``."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [Tokens(encoding.ids, encoding.offsets) for encoding in encodings]

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token that is a part of a character; empty if the vocabulary does not say."""
        return bytes_named(self._tokenizer.id_to_token(token) or "")


def open_codec(folder: Path, chat_template: str | None = None) -> TokenizersCodec:
    """The tokenizer of a model folder.

    Args:
        folder: With ``tokenizer.json`` and the files beside it.
        chat_template: Another template than the model's own: a name of ours, or a file.

    Raises:
        InvalidRequest: The folder has no such tokenizer, or several templates and no default.
    """
    from tokenizers import Tokenizer

    config = read_json(folder / "tokenizer_config.json") or {}
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise _not_here(folder, "it has no tokenizer.json.")
    if "AutoTokenizer" in (config.get("auto_map") or {}):
        raise _not_here(folder, "its tokenizer is code of its own.")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself for a file that it cannot read
        raise _not_here(folder, f"its tokenizer.json cannot be read: {error}.") from None
    names = _special_tokens(folder, config)
    if tokenizer.padding:
        names.setdefault("pad_token", tokenizer.padding["pad_token"])
    _add_tokens(tokenizer, config, names)
    tokenizer.encode_special_tokens = bool(config.get("split_special_tokens"))
    if chat_template is None:
        source = default_template(templates_in(folder), folder)
    else:
        source = read_template(chat_template, adds_bos=bool(_bos(tokenizer)))
    template = None if source is None else Template(source, names)
    return TokenizersCodec(tokenizer, template, tokenizer.token_to_id(names.get("eos_token", "")))


def _bos(tokenizer: Tokenizer) -> tuple[int, ...]:
    """What the tokenizer puts before a text by default."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a").ids
    return tuple(full[: next((i for i in range(len(full)) if full[i : i + len(bare)] == bare), 0)])


def _special_tokens(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """The special tokens by name. A list of all added tokens in the configuration makes the older file void."""
    stored = dict(config)
    if "added_tokens_decoder" not in config:
        stored |= read_json(folder / "special_tokens_map.json") or {}
    extra = stored.get("extra_special_tokens")
    if isinstance(extra, dict):
        stored |= extra
    return {
        name: text
        for name, value in stored.items()
        if name.endswith("_token") and (text := _text_of(value)) is not None
    }


def _add_tokens(tokenizer: Tokenizer, config: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Tokens that the configuration has and ``tokenizer.json`` has not, which transformers adds, too."""
    from tokenizers import AddedToken

    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    for token in _configured(config):
        if token["content"] not in known:
            fields = {key: token[key] for key in ("lstrip", "rstrip", "normalized", "single_word") if key in token}
            special = bool(token.get("special")) or token["content"] in names.values()
            tokenizer.add_tokens([AddedToken(token["content"], special=special, **fields)])
            known.add(token["content"])
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or ()
    listed = [] if isinstance(extra, dict) else [text for token in extra if (text := _text_of(token)) is not None]
    tokenizer.add_special_tokens([text for text in [*names.values(), *listed] if text not in known])


def _configured(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    stored = config.get("added_tokens_decoder") or {}
    for number in sorted(stored, key=int):
        yield stored[number]


def _text_of(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _not_here(folder: Path, reason: str) -> InvalidRequest:
    fix = "A job reads it with the train extra's transformers; look at rows with another tokenizer of the family."
    reason = f"{reason} Without transformers it cannot be read."
    return InvalidRequest([Fault("model.base", shown("model.base", str(folder)), reason, fix, CODE)])
