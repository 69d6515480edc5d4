"""Public models by their id on the hub, for plans without a network: shape, and parameters as they are stored.

The numbers are those of each model's config.json, read in the public copies that an entry names. Where the count as
stored is not known it is the formula's; models whose layers the formula does not know were counted on torch's meta
device, their decoder alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from kernel_launcher.facts.shape import read_shape
from kernel_launcher.planner import ModelFacts
from kernel_launcher.planner.shape import ModelShape, Unknown

Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A model of the catalogue.

    Attributes:
        config: As in config.json; without a shape where only the count is known.
        count: Parameters as stored, where that is not what the formula gives.
        source: Where the numbers are from.
        why_unknown: Why the formula does not know its layers.
    """

    config: Config
    source: str
    count: int | None = None
    why_unknown: str = ""


_SIZES = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")


def _decoder(kind: str, *sizes: int, **more: Any) -> Config:
    return {"model_type": kind, **dict(zip(_SIZES, sizes, strict=True)), **more}


def _qwen3(*sizes: int, tied: bool) -> Config:
    length = {"vocab_size": 151_936, "max_position_embeddings": 40_960}
    return _decoder("qwen3", *sizes, 8, head_dim=128, tie_word_embeddings=tied, **length)


def _llama(*sizes: int, tied: bool = False) -> Config:
    length = {"vocab_size": 128_256, "max_position_embeddings": 131_072}
    return _decoder("llama", *sizes, 8, tie_word_embeddings=tied, **length)


def _smollm2(*sizes: int) -> Config:
    length = {"vocab_size": 49_152, "max_position_embeddings": 8_192}
    return _decoder("llama", *sizes, tie_word_embeddings=True, **length)


def _gemma3(*sizes: int, **more: Any) -> Config:
    base = {"head_dim": 256, "vocab_size": 262_208, "sliding_window": 1_024, "max_position_embeddings": 131_072}
    return _decoder("gemma3_text", *sizes, **{**base, "tie_word_embeddings": True, **more})


def _mistral(*sizes: int, vocab: int, length: int, **more: Any) -> Config:
    base = {"vocab_size": vocab, "max_position_embeddings": length, "tie_word_embeddings": False}
    return _decoder("mistral", *sizes, 8, sliding_window=None, **base, **more)


def _phi(*sizes: int, vocab: int, length: int, **more: Any) -> Config:
    base = {"vocab_size": vocab, "max_position_embeddings": length, "tie_word_embeddings": False}
    return _decoder("phi3", *sizes, **{**base, **more})


def _olmo2(*sizes: int) -> Config:
    base = {"vocab_size": 100_352, "max_position_embeddings": 4_096, "tie_word_embeddings": False}
    return _decoder("olmo2", *sizes, **base)


def _length(tokens: int) -> Config:
    return {"max_position_embeddings": tokens}


_REPORT = "Qwen3 technical report, count as stored on the hub"
_FORMULA = "by formula"
_LITGPT = "shape as in litgpt, count by formula"
_DEFAULTS = "shape as transformers' defaults, count by formula"
_LINEAR = "three of four layers have linear attention"
_EXPERTS = "its layers are mixtures of experts"
_TOWER = "it comes with a vision tower"
_OWN_LAYERS = "its layers differ in width and share keys and values"
_META = "by formula (decoder alone)"

_ENTRIES = {
    "Qwen/Qwen3-0.6B": Entry(_qwen3(28, 1024, 3072, 16, tied=True), _REPORT, 751_632_384),
    "Qwen/Qwen3-1.7B": Entry(_qwen3(28, 2048, 6144, 16, tied=True), _REPORT, 2_031_739_904),
    "Qwen/Qwen3-4B": Entry(_qwen3(36, 2560, 9728, 32, tied=True), _REPORT, 4_022_468_096),
    "Qwen/Qwen3-8B": Entry(_qwen3(36, 4096, 12288, 32, tied=False), _REPORT, 8_190_735_360),
    "Qwen/Qwen3-14B": Entry(_qwen3(40, 5120, 17408, 40, tied=False), _REPORT, 14_768_307_200),
    "Qwen/Qwen3-32B": Entry(_qwen3(64, 5120, 25600, 64, tied=False), _REPORT, 32_762_123_264),
    "Qwen/Qwen3-30B-A3B": Entry(_length(40_960), _META, 30_532_122_624, _EXPERTS),
    "Qwen/Qwen3.5-0.8B": Entry(_length(262_144), _META, 752_393_024, _LINEAR),
    "Qwen/Qwen3.5-9B": Entry(_length(262_144), _META, 8_953_803_264, _LINEAR),
    "Qwen/Qwen3.5-27B": Entry(_length(262_144), _META, 26_895_998_464, _LINEAR),
    "Qwen/Qwen3.5-35B-A3B": Entry(_length(262_144), _META, 34_660_610_688, _EXPERTS),
    "Qwen/Qwen3.6-27B": Entry(_length(262_144), _META, 26_895_998_464, _LINEAR),
    "Qwen/Qwen3.6-35B-A3B": Entry(_length(262_144), _META, 34_660_610_688, _EXPERTS),
    "meta-llama/Llama-3.1-8B": Entry(_llama(32, 4096, 14336, 32), _LITGPT),
    "meta-llama/Llama-3.1-70B": Entry(_llama(80, 8192, 28672, 64), _LITGPT),
    "meta-llama/Llama-3.2-1B": Entry(_llama(16, 2048, 8192, 32, tied=True), _LITGPT),
    "meta-llama/Llama-3.2-3B": Entry(_llama(28, 3072, 8192, 24, tied=True), _LITGPT),
    "meta-llama/Llama-3.3-70B-Instruct": Entry(_llama(80, 8192, 28672, 64), _LITGPT),
    "HuggingFaceTB/SmolLM2-135M": Entry(_smollm2(30, 576, 1536, 9, 3), _FORMULA),
    "HuggingFaceTB/SmolLM2-360M": Entry(_smollm2(32, 960, 2560, 15, 5), _FORMULA),
    "HuggingFaceTB/SmolLM2-1.7B": Entry(_smollm2(24, 2048, 8192, 32, 32), _FORMULA),
    "HuggingFaceTB/SmolLM3-3B": Entry(
        _decoder("smollm3", 36, 2048, 11008, 16, 4, vocab_size=128_256, max_position_embeddings=65_536), _DEFAULTS
    ),
    "google/gemma-3-1b-it": Entry(
        _gemma3(26, 1152, 6912, 4, 1, vocab_size=262_144, sliding_window=512, max_position_embeddings=32_768), _LITGPT
    ),
    "google/gemma-3-4b-it": Entry(_gemma3(34, 2560, 10240, 8, 4), _LITGPT + " (decoder alone)", None, _TOWER),
    "google/gemma-3-12b-it": Entry(_gemma3(48, 3840, 15360, 16, 8), _LITGPT + " (decoder alone)", None, _TOWER),
    "google/gemma-3-27b-it": Entry(
        _gemma3(62, 5376, 21504, 32, 16, head_dim=128), _LITGPT + " (decoder alone)", None, _TOWER
    ),
    "google/gemma-4-E2B-it": Entry(_length(131_072), _META, 4_628_569_344, _OWN_LAYERS),
    "google/gemma-4-26B-A4B-it": Entry(_length(262_144), _META, 25_233_141_760, _EXPERTS),
    "google/gemma-4-31B-it": Entry(_length(262_144), _META, 30_697_345_280, _OWN_LAYERS),
    "mistralai/Mistral-7B-v0.3": Entry(_mistral(32, 4096, 14336, 32, vocab=32_768, length=32_768), _LITGPT),
    "mistralai/Mistral-Nemo-Base-2407": Entry(
        _mistral(40, 5120, 14336, 32, vocab=131_072, length=131_072, head_dim=128), _FORMULA
    ),
    "mistralai/Mistral-Small-24B-Base-2501": Entry(
        _mistral(40, 5120, 32768, 32, vocab=131_072, length=32_768, head_dim=128), _LITGPT
    ),
    "microsoft/Phi-3-mini-4k-instruct": Entry(
        _phi(32, 3072, 8192, 32, 32, vocab=32_064, length=4_096, sliding_window=2_047), _LITGPT
    ),
    "microsoft/Phi-3.5-mini-instruct": Entry(_phi(32, 3072, 8192, 32, 32, vocab=32_064, length=131_072), _LITGPT),
    "microsoft/Phi-4-mini-instruct": Entry(
        _phi(
            32, 3072, 8192, 24, 8,
            vocab=200_064, length=131_072, partial_rotary_factor=0.75, tie_word_embeddings=True,
        ),
        _LITGPT,
    ),
    "microsoft/phi-4": Entry(_phi(40, 5120, 17920, 40, 10, vocab=100_352, length=16_384), _LITGPT),
    "allenai/OLMo-2-0425-1B": Entry(_olmo2(16, 2048, 8192, 16, 16), _FORMULA),
    "allenai/OLMo-2-1124-7B": Entry(_olmo2(32, 4096, 11008, 32, 32), _LITGPT),
    "allenai/OLMo-2-1124-13B": Entry(_olmo2(40, 5120, 13824, 40, 40), _LITGPT),
    "allenai/Olmo-3-7B-Instruct": Entry(
        _decoder(
            "olmo3", 32, 4096, 11008, 32, 32,
            vocab_size=100_278, sliding_window=4_096, tie_word_embeddings=False, max_position_embeddings=65_536,
        ),
        _DEFAULTS,
    ),
}  # fmt: skip

# The same shape under other names: tuned versions, and bases without them.
_SUFFIXES = ("-base", "-instruct", "-it", "-pt", "-thinking", "-2507", "-hf", "-sft", "-dpo", "-think")


def facts_of(model_id: str) -> ModelFacts | None:
    """What the catalogue knows of a model on the hub, or of one that it was tuned from; None if it has neither."""
    return _facts(_NAMES[name]) if (name := _plain(model_id)) in _NAMES else None


def model_ids() -> list[str]:
    """Every id in the catalogue."""
    return list(_ENTRIES)


@cache
def _facts(model_id: str) -> ModelFacts:
    entry = _ENTRIES[model_id]
    shape = read_shape(entry.config) if "model_type" in entry.config else Unknown(entry.why_unknown)
    linears, count, tied = {}, entry.count, None
    if isinstance(shape, ModelShape):
        linears = {name: shape.layers * sum(sizes) for name, sizes in shape.linears.items()}
        count, tied = count or shape.params, shape.tied
    return ModelFacts(
        param_count=count,
        source=f"catalogue: {model_id}, {entry.source}",
        max_length=entry.config["max_position_embeddings"],
        linears=linears,
        shape=Unknown(entry.why_unknown) if entry.why_unknown else shape,
        tied=tied,
    )


def _plain(model_id: str) -> str:
    name = model_id.lower()
    while suffix := next((s for s in _SUFFIXES if name.endswith(s)), None):
        name = name.removesuffix(suffix)
    return name


_NAMES = {_plain(model_id): model_id for model_id in _ENTRIES}
