"""What one decoder layer keeps, against formulas that were written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_launcher.planner.levers import LORA_TARGETS
from kernel_launcher.planner.memory.arithmetic import Adapter, Arithmetic, Attention
from kernel_launcher.planner.memory.layer import forward_alone, layer_memory
from tests.unit.peak_rows import shape

CAUSAL = Attention("causal")
BF16 = Arithmetic(weights=2, residual=2, device="cpu")
FP32 = Arithmetic(weights=4, residual=4, device="cpu")
AUTOCAST = Arithmetic(weights=4, residual=4, autocast=True, device="cpu")
RANK = 16


def lora(*targets: str, dropout: bool = False, autocast: bool = False) -> Arithmetic:
    adapter = Adapter(RANK, targets or LORA_TARGETS, dropout, 4)
    return Arithmetic(weights=2, residual=2, autocast=autocast, adapter=adapter, device="cpu")


@pytest.mark.parametrize("model", ["Qwen3-0.6B", "Qwen3-4B", "Qwen3-32B"])
@pytest.mark.parametrize(
    ("arithmetic", "factors"),
    [
        (BF16, (16, 8, 10, 10)),
        (AUTOCAST, (26, 8, 10, 10)),
        (FP32, (24, 16, 16, 16)),
        (lora(), (28, 10, 12, 8)),
        (lora(dropout=True), (48, 14, 16, 8)),
        (lora(autocast=True), (18, 8, 10, 8)),
        (lora("q_proj", "v_proj"), (16, 6, 8, 8)),
    ],
    ids=["bf16", "autocast", "fp32", "lora", "lora with dropout", "lora with autocast", "lora on q and v"],
)
def test_a_qwen3_layer_keeps(model: str, arithmetic: Arithmetic, factors: tuple[int, int, int, int]):
    """So many bytes a token for each of h, i, A and K, and a few for statistics and the adapter's low ranks."""
    s = shape(model)
    memory = layer_memory(s, arithmetic, CAUSAL)
    sizes = (s.hidden, s.intermediate, s.q_width, s.kv_width)
    expected = (
        sum(factor * size for factor, size in zip(factors, sizes, strict=True)) + 8 * s.heads + 4 * s.kv_heads + 8
    )
    if arithmetic.adapter:
        expected += RANK * len(arithmetic.adapter.targets) * (2 if arithmetic.autocast else 4)
    # In fp32 the residual stream itself is saved, which is counted apart.
    expected -= 4 * s.hidden if memory.keeps_input else 0
    assert expected == memory.kept.per_token


def test_a_mask_costs_repeated_keys_and_itself():
    """With a mask, keys and values are repeated for every query head, and each layer keeps the mask in bf16."""
    s, length = shape("Qwen3-4B"), 700
    plain = layer_memory(s, BF16, CAUSAL).kept.per_token
    masked = layer_memory(s, BF16, Attention("masked", length)).kept.per_token
    assert 4 * s.q_width - 4 * s.kv_width + 2 * length == masked - plain


def test_scores_in_full_grow_with_the_length():
    """Without a fused kernel each layer keeps every score of every head."""
    s = shape("Qwen3-4B")
    short, long = (layer_memory(s, FP32, Attention("math", length)).kept.per_token for length in (512, 1024))
    assert 4 * s.heads * 512 == long - short


def test_a_layer_makes_the_gradients_of_all_its_linear_weights():
    """At the end of a layer's backward pass every linear weight has its gradient."""
    s = shape("Llama-3.1-8B")
    most = max(moment.gradients for moment in layer_memory(s, BF16, CAUSAL).backward)
    assert 2 * s.linear_params == most


def test_adding_in_place_holds_less():
    """Under a dispatch mode, as torch's tracker is one, sums of gradients take memory of their own."""
    s = shape("Llama-3.1-8B")
    real = layer_memory(s, BF16, CAUSAL).backward
    tracked = layer_memory(s, replace(BF16, adds_in_place=False), CAUSAL).backward
    tokens = 10**6
    assert max(m.total.at(tokens) for m in real) <= max(m.total.at(tokens) for m in tracked)


def test_a_forward_pass_alone_keeps_nothing():
    """In inference, and in the first forward pass of a layer that is recomputed, nothing is saved."""
    moments = forward_alone(shape("Qwen3-4B"), BF16, CAUSAL)
    assert {0} == {moment.kept.per_token for moment in moments}


def test_recomputing_an_adapter_can_be_the_worst_moment():
    """LoRA's fp32 copies make the second forward pass heavier than the backward pass after it."""
    memory = layer_memory(shape("Qwen3-32B"), lora(dropout=True), CAUSAL)
    assert max(m.total.per_token for m in memory.backward) < max(m.total.per_token for m in memory.recompute)
