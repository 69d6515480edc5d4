"""A byte-level tokenizer with the control tokens of every template of the table, made without torch."""

# ruff: noqa: RUF001 - DeepSeek writes its control tokens so

from __future__ import annotations

from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from kernel_launcher.data.chat.template import Template
from kernel_launcher.data.chat.templates import read_template, template_names
from kernel_launcher.data.chat.tokenizer import TokenizersCodec
from tests.unit.template_table import TABLE

FACTS = Path(__file__).parents[1] / "data" / "templates"
CONTROL = (
    "<|im_start|>", "<|im_end|>", "<|im_sep|>", "<s>", "</s>", "<bos>", "<eos>", "<|endoftext|>", "<|end|>",
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>",
    "<end_of_turn>", "[INST]", "[/INST]", "<|system|>", "<|user|>", "<|assistant|>", "<think>", "</think>",
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "[gMASK]", "<sop>",
)  # fmt: skip


def source(name: str) -> str:
    """The text of a template: one of ours, or a fact of the tests."""
    return read_template(name if name in template_names() else str(FACTS / f"{name}.jinja"))


@cache
def tokenizer_json() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = [line for row in TABLE.values() for line in row[:4] if line]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL])
    return tokenizer.to_str()


@cache
def codec(name: str) -> TokenizersCodec:
    tokenizer = Tokenizer.from_str(tokenizer_json())
    bos, eos = TABLE[name].bos, TABLE[name].eos
    template = Template(source(name), {"bos_token": bos, "eos_token": eos})
    return TokenizersCodec(tokenizer, template, tokenizer.token_to_id(eos))
