"""The shape of a dense decoder, read from its config.json: all that a memory estimate needs to know of a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Norm = Literal["llama", "gemma", "olmo"]
NormPlace = Literal["before", "around", "after"]
HeadNorm = Literal["none", "each", "all"]


@dataclass(frozen=True, slots=True)
class Unknown:
    """What cannot be said, and why: the value in place of a number that would be a guess."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A dense decoder.

    Attributes:
        layers: Number of decoder layers (L).
        hidden: Width of the residual stream (h).
        intermediate: Width of the MLP (i).
        heads: Query heads (a).
        kv_heads: Key and value heads (k).
        head_dim: Width of a head.
        vocab: Rows of the embedding (V).
        tied: The output layer is the embedding.
        attention_bias: Which attention projections have a bias: none of them, q, k and v, or o as well.
        mlp_bias: Whether the MLP's projections have a bias.
        norm: How RMSNorm is written: it decides in which format it keeps what (see ``decoder.py``).
        norms: Norms before attention and MLP, before and after each, or after each.
        head_norm: A norm on queries and keys: none, on each head, on all heads at once.
        fused: q, k and v are one projection, gate and up another.
        rotary_share: The part of each head that is rotated.
        window: Tokens that a sliding layer looks back; None where all layers look at everything.
        sliding_layers: How many layers slide.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    attention_bias: Literal["none", "qkv", "all"] = "none"
    mlp_bias: bool = False
    norm: Norm = "llama"
    norms: NormPlace = "before"
    head_norm: HeadNorm = "none"
    fused: bool = False
    rotary_share: float = 1.0
    window: int | None = None
    sliding_layers: int = 0

    @property
    def q_width(self) -> int:
        """Queries of one token (A)."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Keys of one token, or values (K)."""
        return self.kv_heads * self.head_dim

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of each linear layer of a decoder layer, by the name that LoRA targets."""
        h, i, q, kv = self.hidden, self.intermediate, self.q_width, self.kv_width
        if self.fused:
            return {
                "qkv_proj": (h, q + 2 * kv), "o_proj": (q, h), "gate_up_proj": (h, 2 * i), "down_proj": (i, h),
            }  # fmt: skip
        return {
            "q_proj": (h, q), "k_proj": (h, kv), "v_proj": (h, kv), "o_proj": (q, h),
            "gate_proj": (h, i), "up_proj": (h, i), "down_proj": (i, h),
        }  # fmt: skip

    @property
    def linear_params(self) -> int:
        """Weights of a layer's linear layers."""
        return sum(inputs * outputs for inputs, outputs in self.linears.values())

    @property
    def layer_params(self) -> int:
        """Parameters of one decoder layer (Lp)."""
        norms = (4 if self.norms == "around" else 2) * self.hidden
        heads = {"none": 0, "each": 2 * self.head_dim, "all": self.q_width + self.kv_width}[self.head_norm]
        qkv = self.q_width + 2 * self.kv_width
        bias = {"none": 0, "qkv": qkv, "all": qkv + self.hidden}[self.attention_bias]
        bias += (2 * self.intermediate + self.hidden) if self.mlp_bias else 0
        return self.linear_params + norms + heads + bias

    @property
    def embedding_params(self) -> int:
        """The embedding (E); an untied output layer has as many."""
        return self.vocab * self.hidden

    @property
    def root_params(self) -> int:
        """What is outside of the layers (R): embedding, final norm, output layer; tied ones once."""
        return self.embedding_params * (1 if self.tied else 2) + self.hidden

    @property
    def params(self) -> int:
        """All parameters (N), tied ones once."""
        return self.layers * self.layer_params + self.root_params

    def adapter_params(self, rank: int, targets: tuple[str, ...]) -> int:
        """Parameters of a LoRA adapter in one layer: rank x (inputs + outputs) for each target."""
        return rank * sum(sum(self.linears[name]) for name in targets if name in self.linears)


@dataclass(frozen=True, slots=True)
class _Family:
    """What a ``model_type`` of transformers 5.24 implies.

    Attributes:
        features: Fields of the shape.
        defaults: What stands in for keys that a config.json leaves out.
        full_every: Every so many layers one looks at everything, where the config lists no kinds; 1 is all of them, 0
            none.
    """

    features: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    full_every: int = 1


_OLMO = {"norm": "olmo", "norms": "after", "head_norm": "all"}
_GEMMA = {"norm": "gemma", "norms": "around", "head_norm": "each"}
_FAMILIES = {
    "llama": _Family(),
    "smollm3": _Family(defaults={"tie_word_embeddings": True, "num_key_value_heads": 4}),
    "mistral": _Family(defaults={"num_key_value_heads": 8, "sliding_window": 4096}, full_every=0),
    "qwen2": _Family({"attention_bias": "qkv"}),
    "qwen3": _Family({"head_norm": "each"}, {"head_dim": 128}),
    "gemma3_text": _Family(
        _GEMMA,
        {"tie_word_embeddings": True, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
        full_every=6,
    ),
    "phi3": _Family({"fused": True}, full_every=0),
    "olmo2": _Family(_OLMO),
    "olmo3": _Family(_OLMO, {"sliding_window": 4096}, full_every=4),
}
_TOWERS = {"vision_config": "a vision tower", "audio_config": "an audio tower"}
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_FULL, _SLIDING = "full_attention", "sliding_attention"


def from_config(config: Mapping[str, Any]) -> ModelShape | Unknown:
    """The shape that a config.json describes, or why nothing is said of it."""
    for key, tower in _TOWERS.items():
        if config.get(key):
            return Unknown(f"it has {tower}")
    if any(_count(config.get(key)) > 1 for key in _EXPERTS):
        return Unknown("its layers are mixtures of experts")
    kinds = config.get("layer_types")
    kinds = kinds if isinstance(kinds, list) else []
    for kind in kinds:
        if kind not in (_FULL, _SLIDING):
            return Unknown(f"it has layers of kind {kind}")
    name = config.get("model_type")
    family = _FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        return Unknown(f"models of type {name} are not known")
    return _shape({**family.defaults, **config}, family, kinds)


def _shape(settings: Mapping[str, Any], family: _Family, kinds: list[str]) -> ModelShape | Unknown:
    sizes = {
        key: _count(settings.get(key))
        for key in ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
    }
    if missing := [key for key, size in sizes.items() if not size]:
        return Unknown(f"its config.json has no usable {missing[0]}")
    layers, hidden, heads = sizes["num_hidden_layers"], sizes["hidden_size"], sizes["num_attention_heads"]
    kv_heads = _count(settings.get("num_key_value_heads")) or heads
    head_dim = _count(settings.get("head_dim")) or hidden // heads
    if not head_dim or heads % kv_heads:
        return Unknown("its config.json has no usable num_key_value_heads or head_dim")
    window = _count(settings.get("sliding_window")) if settings.get("use_sliding_window") is not False else 0
    if kinds:
        sliding = kinds[:layers].count(_SLIDING)
    else:
        sliding = layers - layers // family.full_every if family.full_every else layers
    features = {"attention_bias": "all"} if settings.get("attention_bias") is True else {}
    return ModelShape(
        layers=layers,
        hidden=hidden,
        intermediate=sizes["intermediate_size"],
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=sizes["vocab_size"],
        tied=settings.get("tie_word_embeddings") is True,
        mlp_bias=settings.get("mlp_bias") is True,
        rotary_share=_rotary_share(settings),
        window=window or None,
        sliding_layers=sliding if window else 0,
        **{**family.features, **features},
    )


def _count(value: object) -> int:
    """A size above zero, or 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _rotary_share(settings: Mapping[str, Any]) -> float:
    nested = settings.get("rope_parameters")
    share = nested.get("partial_rotary_factor") if isinstance(nested, dict) else None
    share = settings.get("partial_rotary_factor", 1.0) if share is None else share
    return float(share) if isinstance(share, int | float) and 0 < share < 1 else 1.0
