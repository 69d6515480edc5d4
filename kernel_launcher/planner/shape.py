"""The shape of a dense decoder, read from its config.json: all that a memory estimate needs to know of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Norm = Literal["llama", "gemma", "olmo"]
NormPlace = Literal["before", "around", "after"]
HeadNorm = Literal["none", "each", "all"]


@dataclass(frozen=True, slots=True)
class Unknown:
    """What cannot be said, and why: the value in place of a number that would be a guess."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder of equal layers.

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
        norms = {"before": 2, "around": 4, "after": 2}[self.norms] * self.hidden
        heads = {"none": 0, "each": 2 * self.head_dim, "all": self.q_width + self.kv_width}[self.head_norm]
        bias = {"none": 0, "qkv": self.q_width + 2 * self.kv_width}.get(
            self.attention_bias, self.q_width + 2 * self.kv_width + self.hidden
        )
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
