"""From a model's config.json to the shape of its decoder, or to why the memory formula does not know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_launcher.planner.shape import ModelShape, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What a family's layers look like, beyond the numbers; read in transformers 5.24's modeling files.
_FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "ministral": {},
    "ministral3": {},
    "smollm3": {},
    "qwen2": {"attention_bias": "qkv"},
    "qwen3": {"head_norm": "each"},
    "phi3": {"fused": True},
    "gemma3_text": {"norm": "gemma", "norms": "around", "head_norm": "each"},
    "olmo2": {"norm": "olmo", "norms": "after", "head_norm": "all"},
    "olmo3": {"norm": "olmo", "norms": "after", "head_norm": "all"},
}
_TIED_BY_DEFAULT = ("gemma3_text", "smollm3")
_SLIDES_UNLESS_TOLD = ("mistral", "ministral", "phi3", "gemma3_text", "olmo3")
_FULL_EVERY = {"gemma3_text": 6, "olmo3": 4}
_MOST = 10**7


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that is about text: of a model that also sees, a section of its own."""
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def read_shape(config: Mapping[str, Any]) -> ModelShape | Unknown:
    """The decoder that a config.json describes."""
    text = text_config(config)
    kind = str(text.get("model_type", ""))
    if any(isinstance(config.get(tower), dict) for tower in ("vision_config", "audio_config")):
        return Unknown("it has a vision or audio tower")
    if "linear_attention" in _layer_types(text) or kind.startswith(("qwen3_5", "qwen3_next")):
        return Unknown("it has layers with linear attention")
    if any(_number(text, name) for name in ("num_experts", "num_local_experts", "n_routed_experts")):
        return Unknown("its layers are mixtures of experts")
    if kind not in _FAMILIES:
        return Unknown(
            f"layers of kind {kind[:40]!r} are not in the formula" if kind else "config.json names no model type"
        )
    try:
        return _shape(kind, text)
    except _MissingError as error:
        return Unknown(str(error))


def is_tied(config: Mapping[str, Any]) -> bool:
    """Whether the output layer is the embedding."""
    text = text_config(config)
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings"))
    return tied if isinstance(tied, bool) else text.get("model_type") in _TIED_BY_DEFAULT


class _MissingError(ValueError):
    """A config without something that a shape needs."""


def _shape(kind: str, text: Mapping[str, Any]) -> ModelShape:
    layers, hidden, heads = (_needed(text, n) for n in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    family = dict(_FAMILIES[kind])
    if text.get("attention_bias") is True:
        family["attention_bias"] = "all"
    window, sliding = _window(kind, text, layers)
    share = text.get("partial_rotary_factor")
    return ModelShape(
        layers=layers,
        hidden=hidden,
        intermediate=_needed(text, "intermediate_size"),
        heads=heads,
        kv_heads=_number(text, "num_key_value_heads") or heads,
        head_dim=_number(text, "head_dim") or max(1, hidden // heads),
        vocab=_needed(text, "vocab_size"),
        tied=is_tied(text),
        mlp_bias=text.get("mlp_bias") is True,
        rotary_share=float(share) if isinstance(share, float) and 0 < share <= 1 else 1.0,
        window=window,
        sliding_layers=sliding,
        **family,
    )


def _window(kind: str, text: Mapping[str, Any], layers: int) -> tuple[int | None, int]:
    """Tokens that a sliding layer looks back, and how many layers slide."""
    window = _number(text, "sliding_window")
    if window is None or not text.get("use_sliding_window", kind in _SLIDES_UNLESS_TOLD):
        return None, 0
    if kinds := _layer_types(text):
        count = sum(kind == "sliding_attention" for kind in kinds[:layers])
    else:
        count = layers - (layers // _FULL_EVERY[kind] if kind in _FULL_EVERY else 0)
    return (window, count) if count else (None, 0)


def _layer_types(text: Mapping[str, Any]) -> Sequence[Any]:
    kinds = text.get("layer_types")
    return kinds if isinstance(kinds, list | tuple) else ()


def _needed(text: Mapping[str, Any], name: str) -> int:
    value = _number(text, name)
    if value is None:
        raise _MissingError(f"config.json does not say {name}")
    return value


def _number(text: Mapping[str, Any], name: str) -> int | None:
    value = text.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST else None
