"""The two sample models: SmolLM2-135M-Instruct from its GGUF file, and a tiny random Qwen3 for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from tokenizers.pre_tokenizers import Digits, Sequence
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    GgufConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    TokenizersBackend,
)

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT_LENGTH = 8192


def read_tokenizer(gguf: Path) -> TokenizersBackend:
    """SmolLM2's tokenizer; 0.3 s, for no weight is read."""
    tokenizer = TokenizersBackend.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # transformers 5.24 does not know the file's pre-tokenizer, "smollm", and leaves out its first step: each
    # digit stands alone. Then the spaces before a number are cut otherwise than SmolLM2 learned them: a small
    # Markdown table of numbers costs it 78.7 nats instead of 44.2.
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = Sequence([Digits(individual_digits=True), backend.pre_tokenizer])
    tokenizer.model_max_length = CONTEXT_LENGTH
    return tokenizer


def save_smollm2(folder: Path, gguf: Path, tokenizer: TokenizersBackend) -> None:
    """SmolLM2-135M-Instruct, 134,515,008 parameters in bfloat16."""
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    _save(folder, model, tokenizer)


def save_tiny(folder: Path, tokenizer: TokenizersBackend) -> None:
    """A two-layer Qwen3 of hidden size 32 with random weights, 1.6 million parameters in bfloat16."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=CONTEXT_LENGTH,
        tie_word_embeddings=True,
        **_special_ids(tokenizer),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
    _save(folder, model.to(torch.bfloat16), tokenizer)


def _save(folder: Path, model: Any, tokenizer: TokenizersBackend) -> None:
    model.generation_config = GenerationConfig(**_special_ids(tokenizer))
    try:
        model.save_pretrained(folder)
    except SafetensorError as error:  # a full disk, which is an OSError everywhere else
        raise OSError(str(error)) from error
    tokenizer.save_pretrained(folder)


def _special_ids(tokenizer: TokenizersBackend) -> dict[str, int]:
    return {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
