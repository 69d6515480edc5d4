"""Packed rows train as the rows do apart, on any model that is let through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.worker.errors import ConfigError
from tests.unit.small_runs import small_plan, small_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.conftest import Sample

pytestmark = pytest.mark.torch
VOCABULARY = 64
PAD = 3
_LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "max_position_embeddings": 64}
_LLAMA = {**_LAYERS, "intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 8}
_GPT2 = {"n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 64}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3": _LLAMA,
    "llama": _LLAMA,
    "mistral": {**_LLAMA, "sliding_window": 4},
    "gemma": _LLAMA,
    "gemma3_text": {**_LLAMA, "sliding_window": 4},
    "mixtral": {**_LLAMA, "num_local_experts": 4},
    "gpt_neox": {**_LAYERS, "intermediate_size": 64},
    "gpt2": _GPT2,
    "falcon": {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "alibi": True},
    "opt": {**_LAYERS, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "gpt_oss": {**_LLAMA, "num_local_experts": 4},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "lfm2": {**_LLAMA, "layer_types": ["conv", "full_attention"]},
}
# Two packed sequences, one of them shorter; a row of one token, and one that is longer than the sliding windows.
SEQUENCES = [[7, 1, 12], [5, 6]]


def model_of(kind: str, dtype: str = "float32") -> Any:
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](vocab_size=VOCABULARY, pad_token_id=0, **CONFIGS[kind])
    return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))


def rows_of(lengths: Sequence[int]) -> list[list[int]]:
    """Token ids of rows, all different."""
    import torch

    numbers = torch.Generator().manual_seed(sum(lengths))
    return [torch.randint(4, VOCABULARY, (length,), generator=numbers).tolist() for length in lengths]


def packed(rows: list[list[int]]) -> dict[str, Any]:
    ids = [token for row in rows for token in row]
    return {"input_ids": ids, "labels": ids, "lengths": [len(row) for row in rows]}


def total_loss(model: Any, batch: dict[str, Any]) -> Any:
    """The sum over all trained tokens, from the model's own logits."""
    import torch

    inputs = {name: value for name, value in batch.items() if name not in ("labels", "tokens")}
    logits = model(**inputs, use_cache=False).logits[:, :-1].flatten(0, 1).float()
    return torch.nn.functional.cross_entropy(logits, batch["labels"][:, 1:].flatten(), reduction="sum")


def test_a_batch_of_packed_rows() -> None:
    """Positions begin again at each row and at the padding; neither padding nor a row's first token is predicted."""
    from kernel_launcher.worker.packing import PackedCollator

    batch = PackedCollator(PAD)([packed([[8, 9], [10, 11, 12]]), packed([[13], [14]])])
    assert [[8, 9, 10, 11, 12], [13, 14, PAD, PAD, PAD]] == batch["input_ids"].tolist()
    assert [[0, 1, 0, 1, 2], [0, 0, 0, 1, 2]] == batch["position_ids"].tolist()
    assert [[-100, 9, -100, 11, 12], [-100] * 5] == batch["labels"].tolist()
    assert [5, 2] == batch["tokens"].tolist()
    assert {"input_ids", "position_ids", "labels", "tokens"} == batch.keys()


@pytest.mark.parametrize(
    "kind", ["qwen3", "llama", "mistral", "gemma", "gemma3_text", "mixtral", "gpt_neox", "gpt2", "falcon"]
)
def test_packed_rows_have_the_loss_and_gradients_of_the_rows_apart(kind: str) -> None:
    """To 1e-5, for a micro batch of two with padding."""
    import torch

    from kernel_launcher.worker.packing import PackedCollator, check_packing

    model = model_of(kind)
    check_packing(model, VOCABULARY, torch.device("cpu"))
    assert model.training
    model.eval()  # GPT-2 has dropout
    sequences = [rows_of(lengths) for lengths in SEQUENCES]
    together = total_loss(model, PackedCollator(PAD)([packed(rows) for rows in sequences]))
    together.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    apart = 0.0
    for row in (row for rows in sequences for row in rows):
        loss = total_loss(model, {"input_ids": torch.tensor([row]), "labels": torch.tensor([row])})
        loss.backward()
        apart += loss.item()
    assert apart == pytest.approx(together.item(), rel=1e-5)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("opt", "answers otherwise to a row"),
        ("bloom", "answers otherwise to a row"),
        ("gpt_oss", "answers otherwise to a row"),
        ("mamba", "whose state runs on"),
        ("lfm2", r"layers \(conv\) whose state runs on"),
    ],
)
def test_a_model_that_mixes_packed_rows_is_refused(kind: str, reason: str, dtype: str) -> None:
    """Some build their mask without the positions, some carry a state along: packing would train on mixed rows."""
    import torch

    from kernel_launcher.worker.packing import check_packing

    with pytest.raises(ConfigError, match=rf"method.packing: a .* does not keep packed rows apart: .*{reason}"):
        check_packing(model_of(kind, dtype), VOCABULARY, torch.device("cpu"))


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "mixtral", "gpt2"])
def test_rounding_is_not_taken_for_mixing(kind: str) -> None:
    """In bfloat16 the same row gives other last digits at another place."""
    import torch

    from kernel_launcher.worker.packing import check_packing

    check_packing(model_of(kind, "bfloat16"), VOCABULARY, torch.device("cpu"))


def test_the_trainer_takes_packed_rows_as_it_takes_rows(sample: Sample, tmp_path: Path) -> None:
    """TRL's own loss, its fused output layer, the clipped step and the count of tokens: all the same."""
    sequences = [rows_of(lengths) for lengths in SEQUENCES]
    together = [packed(rows) for rows in sequences]
    apart = [{"input_ids": row, "labels": row} for rows in sequences for row in rows]
    one = small_run(sample, tmp_path, together, small_plan(packing=True, max_steps=2, micro_batch_size=2))
    other = small_run(sample, tmp_path, apart, small_plan(max_steps=2, micro_batch_size=5))
    for name in ("loss", "grad_norm"):
        assert other.metrics(name) == pytest.approx(one.metrics(name), rel=1e-5)
    count = sum(map(sum, SEQUENCES))
    assert [count, 2 * count] == one.metrics("tokens") == other.metrics("tokens")
