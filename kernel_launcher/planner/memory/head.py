"""The output layer and the loss: what they hold in forward, in backward, and leave behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel_launcher.planner.memory.arithmetic import BF16, FP32

if TYPE_CHECKING:
    from kernel_launcher.planner.shape import ModelShape
    from kernel_launcher.planner.workload import Workload

# TRL 1.16, kernels/chunked_logprob.py: the head works on tiles of so many tokens and vocabulary entries.
TILE_TOKENS = 4096
TILE_VOCAB = 32768
# fp32 tiles alive at once where torch's operators stand in for the Triton kernel (counted with torch's tracker): the
# forward fold with three outputs and a mask of one byte, and the backward fold.
CPU_FORWARD_TILES = 3.25
CPU_BACKWARD_TILES = 7.25


@dataclass(frozen=True, slots=True)
class HeadMemory:
    """Bytes of the head and the loss.

    Attributes:
        kept: What lives from their forward to their backward pass, the head's input included.
        forward: The worst moment in forward, like the next two with what is kept.
        loss_backward: The worst moment in backward before the gradient reaches the head.
        backward: The worst moment of the head's own backward.
        gradient: What the head leaves: the gradient of its weight.
        shares_gradient: That gradient is a view, so that a tied embedding's is not added to it in place.
    """

    kept: float
    forward: float
    loss_backward: float
    backward: float
    gradient: float
    shares_gradient: bool


def head_memory(workload: Workload, shape: ModelShape) -> HeadMemory:
    """Memory of the head and the loss that a run really uses."""
    trains = workload.lora is None
    gradient = float(shape.embedding_params * workload.base.computed) if trains else 0.0
    if workload.loss == "fused":
        return _fused(workload, shape, gradient)
    return _logits(workload, shape, gradient)


def _computed(workload: Workload) -> int:
    return BF16 if workload.autocast else workload.base.computed


def _casts_weight(workload: Workload) -> bool:
    return workload.autocast and workload.base.computed == FP32


def _fused(workload: Workload, shape: ModelShape, gradient: float) -> HeadMemory:
    """TRL's fused head: tiles of logits, gradients collected in fp32 (read in source; measured on the CPU)."""
    h = shape.hidden
    tokens = workload.tokens - workload.rows  # the last token of a row predicts nothing
    width, residual = _computed(workload), workload.arithmetic.residual
    tile_tokens, tile_vocab = min(tokens, TILE_TOKENS), min(shape.vocab, TILE_VOCAB)
    tile = tile_tokens * tile_vocab * FP32
    buffer = tile_tokens * TILE_VOCAB * width
    rows_cast = tile_tokens * h * BF16 if residual != width else 0
    weight_cast = tile_vocab * h * BF16 if _casts_weight(workload) else 0
    on_cpu = workload.device == "cpu"
    entry = float(tokens * h * residual)
    # On CUDA labelled positions are picked out; on a CPU the last position of each row is cut off, a view of one row.
    copied = not on_cpu or workload.rows > 1
    statistics = 7 * FP32 * tokens
    folds = CPU_FORWARD_TILES * tile if on_cpu else 0
    forward = entry * (2 if copied else 1) + statistics + buffer + rows_cast + max(folds, weight_cast)
    collected = tokens * h * FP32 + (shape.embedding_params * FP32 if gradient else 0)
    # Without CUDA's bf16 products with an fp32 sum, their factors are cast.
    factors = tile + tile_vocab * h * FP32 if width == BF16 else 0
    folds = max(CPU_BACKWARD_TILES * tile, factors) if on_cpu else 0
    # At the end what was collected in fp32 is cast to the formats of weight and input.
    results = (gradient if workload.base.computed != FP32 else 0) + (entry if residual != FP32 else 0)
    backward = entry + buffer + rows_cast + collected + max(folds + weight_cast, results)
    return HeadMemory(entry, forward, 0.0, backward, gradient, shares_gradient=False)


def _logits(workload: Workload, shape: ModelShape, gradient: float) -> HeadMemory:
    """Full logits (measured): cast to fp32, their log-softmax, and in backward its gradient twice."""
    entries = workload.tokens * shape.vocab
    width = _computed(workload)
    entry = workload.tokens * shape.hidden * width
    kept = (entry if gradient else 0) + (shape.embedding_params * BF16 if _casts_weight(workload) else 0)
    if workload.method == "dpo":
        # TRL before 1.16: log-probabilities are picked row by row.
        probabilities = width * entries
        forward = (2 if width == BF16 else 1.5) * width * entries
        loss_backward = (6 + 2 / workload.rows if width == BF16 else 12) * entries
    else:
        probabilities = FP32 * entries
        forward = (width + 2 * FP32 if width != FP32 else 2 * FP32) * entries
        loss_backward = 3 * FP32 * entries
    backward = width * entries + gradient + entry
    if _casts_weight(workload):
        # The norm's fp32 output, which the head casts, has a name; the bf16 gradient of its weight is cast at last.
        forward += workload.tokens * shape.hidden * FP32
        backward += shape.embedding_params * BF16
    return HeadMemory(
        kept + probabilities, kept + forward, kept + loss_backward, kept + backward, gradient, shares_gradient=True
    )
