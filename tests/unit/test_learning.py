"""Whether the updates reach the weights, and what is said when they do not."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.small_runs import small_plan, small_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Sample

pytestmark = pytest.mark.torch
ROWS = [{"input_ids": list(range(5 + i, 45 + i)), "labels": list(range(5 + i, 45 + i))} for i in range(8)]


def network(dtype: str = "float32", rows: int = 400, columns: int = 300) -> Any:
    """Two layers with weights of size one, and an update of their size waiting."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(columns, rows, dtype=getattr(torch, dtype)) for _ in range(2)))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
        parameter.grad = torch.ones_like(parameter)
    return model


def change_by(model: Any, update: Any) -> Any:
    """What is measured of an update: a function that changes the parameters in place."""
    import torch

    from kernel_launcher.worker.learning import WeightSample

    sample = WeightSample(model.named_parameters())
    sample.note()
    with torch.no_grad():
        update(model)
    return sample.measure()


def test_the_ratio_is_that_of_all_weights() -> None:
    """Every weight grows by a thousandth: so does the sample, whatever the sizes of the tensors."""
    change = change_by(network(), lambda model: [p.mul_(1.001) for p in model.parameters()])
    assert 1e-3 == pytest.approx(change.ratio, rel=1e-3)
    assert 1.0 == change.changed
    assert frozenset() == change.still


def test_the_share_counts_the_weights_that_had_a_gradient() -> None:
    """Half of the columns have one, and half of those move: one in two, to 2 %."""

    def update(model: Any) -> None:
        for layer in model:
            layer.weight[:, ::4] += 1
            layer.bias += 1

    model = network()
    for layer in model:
        layer.weight.grad[:, 1::2] = 0
    assert 0.5 == pytest.approx(change_by(model, update).changed, abs=0.02)


def test_the_layer_that_moves_least_is_named() -> None:
    """Layer 1 moves by a hundredth of what layer 0 does."""

    def update(model: Any) -> None:
        for factor, layer in zip((1.01, 1.0001), model, strict=True):
            for parameter in layer.parameters():
                parameter.mul_(factor)

    change = change_by(network(), update)
    assert "1" == change.lowest
    assert 1e-4 == pytest.approx(change.lowest_ratio, rel=1e-2)


@pytest.mark.parametrize("shape", [(1,), (7,), (64, 64), (1000, 512), (300, 400), (50257, 8)])
def test_a_sample_meets_every_column(shape: tuple[int, ...]) -> None:
    """Otherwise what happens to one column (a token's, a head's) would stand for all."""
    from kernel_launcher.worker.learning import _places

    size, columns = math.prod(shape), shape[-1]
    chosen = range(size)[_places(size, shape, 0.01)]
    assert min(size, 200) <= len(chosen)
    assert min(columns, len(chosen)) == len({place % columns for place in chosen})


def complaints_of(**change: Any) -> list[str]:
    from kernel_launcher.worker.learning import Change, complaints

    usual = {"changed": 0.9, "ratio": 1e-3, "lowest_ratio": 1e-4, "lowest": "x", "still": frozenset()}
    rounds_away = change.pop("rounds_away", False)
    return complaints([Change(**{**usual, **change})] * 3, rounds_away, 2e-5)


def test_a_run_that_learns_draws_no_complaint() -> None:
    """Nor does one that rounds by chance, where few weights change at a time and those are the right ones."""
    assert [] == complaints_of()
    assert [] == complaints_of(rounds_away=True)
    assert [] == complaints_of(changed=0.04)
    assert [] == complaints_of(still=frozenset({"model.norm.weight"}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"changed": 0.04, "rounds_away": True}, "rounding loses most of the training: an update changes 4.0% of"),
        ({"changed": 0.0, "rounds_away": True}, "rounding loses most of the training: an update changes 0.0% of"),
        ({"changed": 0.0, "ratio": 0.0}, "no update changes any weight"),
        ({"ratio": 3e-8}, "an update moves the weights by 3e-08 of their size: at learning_rate = 2e-05"),
        (
            {"still": frozenset({"layers.0.q_proj.lora_A.weight", "layers.0.q_proj.lora_B.weight", "norm"})},
            "2 adapter tensors did not change in 3 steps: no gradient reaches them (layers.0.q_proj.lora_A.weight, ",
        ),
    ],
)
def test_a_run_that_cannot_learn_is_told_why(change: dict[str, Any], said: str) -> None:
    """One reason, with the figure and the setting."""
    [complaint] = complaints_of(**change)
    assert complaint.startswith(said)


def test_plain_bfloat16_is_found_out(sample: Sample, tmp_path: Path) -> None:
    """With torch's AdamW at the default learning rate of DPO nearly every update is lost; it is said once."""
    import torch

    plan = small_plan(precision="bf16", max_steps=5, micro_batch_size=2, learning_rate=5e-6)
    adamw = partial(torch.optim.AdamW, lr=5e-6)
    told = small_run(sample, tmp_path, ROWS, plan, optimizer=adamw)
    [warning] = told.of("warning")
    assert warning["message"].startswith("rounding loses most of the training")
    assert all(0 < share < 0.1 for share in told.metrics("weights_changed"))


def test_float32_weights_all_change(sample: Sample, tmp_path: Path) -> None:
    """And nothing is said of it. Each of the first ten steps is measured, then every tenth."""
    told = small_run(sample, tmp_path, ROWS, small_plan(max_steps=12, micro_batch_size=2))
    shares = told.metrics("weights_changed")
    assert all(share > 0.95 for share in shares[:10])
    assert [None, None] == shares[10:]
    assert all(1e-6 < ratio < 1e-2 for ratio in told.metrics("update_ratio")[:10])
    assert [] == told.of("warning")


def test_an_adapter_that_learns_draws_no_warning(sample: Sample, tmp_path: Path) -> None:
    """Its first half has no gradient in step 1: its second half is zero then."""
    plan = small_plan(max_steps=5, micro_batch_size=2, lora_rank=4)
    told = small_run(sample, tmp_path, ROWS, plan)
    assert [] == told.of("warning")
    assert all(share > 0.9 for share in told.metrics("weights_changed"))


def test_a_warm_up_is_waited_for(sample: Sample, tmp_path: Path) -> None:
    """Its first learning rates are meant to be small, and the first is zero."""
    told = small_run(sample, tmp_path, ROWS, small_plan(max_steps=8, micro_batch_size=2, warmup_steps=6))
    assert [] == told.of("warning")
    assert 0 == told.metrics("weights_changed")[0]
