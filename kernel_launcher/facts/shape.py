"""From a config.json, of which nothing is certain, to a decoder's shape or why the memory model does not know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_launcher.planner.shape import ModelShape, Unknown, from_config

if TYPE_CHECKING:
    from collections.abc import Mapping

_COUNTS = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "sliding_window", "sliding_window_pattern", "num_experts", "num_local_experts", "n_routed_experts",
)  # fmt: skip
_SWITCHES = ("tie_word_embeddings", "attention_bias", "mlp_bias", "use_sliding_window")
_TOWERS = ("vision_config", "audio_config")
_LINEAR_ATTENTION = ("qwen3_5", "qwen3_next")
_MOST = 10**7


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that is about text: of a model that also sees, a section of its own."""
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def read_shape(config: Mapping[str, Any]) -> ModelShape | Unknown:
    """The decoder that a config.json describes; a value of the wrong type or size counts as missing."""
    text = text_config(config)
    kind = text.get("model_type")
    if isinstance(kind, str) and kind.startswith(_LINEAR_ATTENTION):
        return Unknown("most of its layers have linear attention")
    sound: dict[str, Any] = {"model_type": kind[:40] if isinstance(kind, str) else None}
    sound |= {name: config[name] for name in _TOWERS if isinstance(config.get(name), dict)}
    sound |= {name: text[name] for name in _COUNTS if name in text and _is_count(text[name])}
    sound |= {name: text[name] for name in _SWITCHES if isinstance(text.get(name), bool)}
    if isinstance(config.get("tie_word_embeddings"), bool):
        sound["tie_word_embeddings"] = config["tie_word_embeddings"]
    if "sliding_window" in text and text["sliding_window"] is None:
        sound["sliding_window"] = None
    kinds = text.get("layer_types")
    if isinstance(kinds, list | tuple) and all(isinstance(kind, str) for kind in kinds):
        sound["layer_types"] = list(kinds)
    share = text.get("partial_rotary_factor")
    if isinstance(share, int | float):
        sound["partial_rotary_factor"] = share
    if isinstance(text.get("rope_parameters"), dict):
        sound["rope_parameters"] = text["rope_parameters"]
    if isinstance(kind, str) and kind.startswith("qwen"):
        sound.setdefault("use_sliding_window", False)
    return from_config(sound)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST
