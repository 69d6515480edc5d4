"""The model's own tokenizer and chat template, as the data part needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import TemplateError
from tokenizers import Tokenizer

from kernel_launcher.data.codec import Tokens
from kernel_launcher.data.faults import CODE, DataRefusal
from kernel_launcher.errors import Fault, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedTokenizerBase

    from kernel_launcher.data.examples import Message


class TransformersCodec:
    """A fast transformers tokenizer.

    Raises:
        InvalidRequest: The tokenizer is not a fast one, so that nothing tells which characters a token stands for.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.is_fast:
            reason = f"its tokenizer ({type(tokenizer).__name__}) does not say which characters a token stands for."
            raise InvalidRequest([Fault("model.base", "", reason, "Use a model with a tokenizer.json.", CODE)])
        self._tokenizer = tokenizer
        self._plain = _without_trimming(tokenizer)
        self.chat = bool(tokenizer.chat_template)
        self.bos = _bos(tokenizer)
        self.eos: int | None = tokenizer.eos_token_id

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """The conversation as the template writes it; raises DataRefusal where the template does not take it."""
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    turns, tokenize=False, add_generation_prompt=add_generation_prompt
                )
            )
        # A template raises by itself, or through what it does with a value that it did not expect.
        except (TemplateError, TypeError, ValueError) as error:
            raise DataRefusal(f"the chat template does not take it: {error}.") from error

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text, as transformers gives them with ``add_special_tokens=False``."""
        encodings = self._plain.encode_batch(list(texts), add_special_tokens=False)
        return [Tokens(encoding.ids, encoding.offsets) for encoding in encodings]


def _without_trimming(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """The same tokens from a copy whose offsets cover white space.

    A post-processor that trims (Llama 3 has one) leaves spaces out of them, and a token of spaces alone without any
    place. With no special tokens to add, it does nothing else.
    """
    plain = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    plain.post_processor = None
    plain.no_truncation()
    plain.no_padding()
    plain.encode_special_tokens = tokenizer.split_special_tokens
    return plain


def _bos(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """What the tokenizer puts before a text by default."""
    bare = tokenizer("a", add_special_tokens=False).input_ids
    full = tokenizer("a").input_ids
    return tuple(full[: next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)])
