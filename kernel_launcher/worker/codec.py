"""The model's own tokenizer and chat template, as the data part needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import TemplateError
from tokenizers import Tokenizer

from kernel_launcher.data.chat.mark import Marker
from kernel_launcher.data.chat.template import Template
from kernel_launcher.data.chat.templates import default_template
from kernel_launcher.data.chat.tokenizer import TokenizersCodec
from kernel_launcher.data.rows.faults import CODE, DataRefusal
from kernel_launcher.errors import Fault, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import GenerationConfig, PreTrainedTokenizerBase

    from kernel_launcher.data.rows.examples import Message


class TransformersCodec(TokenizersCodec):
    """A fast transformers tokenizer.

    Raises:
        InvalidRequest: The tokenizer is not a fast one, so that nothing tells which characters a token stands for;
            or it has several chat templates and no default.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.is_fast:
            reason = f"its tokenizer ({type(tokenizer).__name__}) does not say which characters a token stands for."
            raise InvalidRequest([Fault("model.base", "", reason, "Use a model with a tokenizer.json.", CODE)])
        own = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        own.encode_special_tokens = tokenizer.split_special_tokens
        super().__init__(own, _template(tokenizer), tokenizer.eos_token_id)
        self._writes_itself = None if _is_usual(tokenizer) else tokenizer

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """The conversation as the template writes it; raises DataRefusal where the template does not take it.

        Straight from the template it takes 15 us, through transformers 34 us.
        """
        if self._writes_itself is None:
            return super().render(messages, add_generation_prompt=add_generation_prompt)
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return str(
                self._writes_itself.apply_chat_template(
                    turns, tokenize=False, add_generation_prompt=add_generation_prompt
                )
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise DataRefusal(f"the chat template does not take it: {error}.") from error


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The control token with which the tokenizer's chat template ends an answer; None if it ends with none."""
    return Marker(TransformersCodec(tokenizer), "answers").stop_token


def stop_at_end_of_turn(generation_config: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Have generation stop where the chat template ends an answer, too; whether that is new."""
    token = end_of_turn(tokenizer)
    if generation_config is None or token is None:
        return False
    known = generation_config.eos_token_id
    stops = known if isinstance(known, list) else [] if known is None else [known]
    if token in stops:
        return False
    generation_config.eos_token_id = [*stops, token]
    return True


def _template(tokenizer: PreTrainedTokenizerBase) -> Template | None:
    stored = tokenizer.chat_template
    if not stored:
        return None
    source = default_template(stored, tokenizer.name_or_path) if isinstance(stored, dict) else stored
    return None if source is None else Template(source, tokenizer.special_tokens_map)


def _is_usual(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether its conversations are written by its template alone: a class of a model may do it by itself."""
    from transformers import PreTrainedTokenizerBase

    return type(tokenizer).apply_chat_template is PreTrainedTokenizerBase.apply_chat_template
