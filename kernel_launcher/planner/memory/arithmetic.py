"""What a layer's memory depends on beside its shape: formats, adapter, kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BF16 = 2
FP32 = 4


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter: its rank, the layers it is on, its dropout, and the bytes of its weights where they compute."""

    rank: int
    targets: tuple[str, ...]
    dropout: bool
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """In which formats a layer computes, and what it trains.

    Attributes:
        weights: Bytes of a weight as the forward pass finds it (under FSDP2: gathered).
        residual: Bytes of a value in the residual stream.
        autocast: Whether linear layers and attention cast their inputs to bf16.
        adapter: The LoRA adapter; the rest is frozen then.
        four_bit: The frozen linear weights are packed and unpacked at each use.
        device: Whose kernels.
        adds_in_place: See ``backward``.
    """

    weights: int
    residual: int
    autocast: bool = False
    adapter: Adapter | None = None
    four_bit: bool = False
    device: Literal["cuda", "cpu"] = "cuda"
    adds_in_place: bool = True

    @property
    def trains_base(self) -> bool:
        return self.adapter is None


@dataclass(frozen=True, slots=True)
class Attention:
    """Which kernel attention gets.

    Attributes:
        kernel: ``causal``: a fused one that knows nothing but causality; ``masked``: a fused one with a mask, which
            wants keys and values repeated for each query head; ``math``: scores in full.
        length: Tokens of a row, where memory depends on them beside their sum; 0 for the causal one.
    """

    kernel: Literal["causal", "masked", "math"]
    length: int = 0
