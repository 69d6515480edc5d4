"""Whether the updates reach the weights, and what is said when they do not."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.worker.complaints import Course, complaints, overshoots
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

    from kernel_launcher.worker.weights import WeightSample

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
    assert change.reached
    assert frozenset() == change.unreached


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
    from kernel_launcher.worker.weights import _places

    size, columns = math.prod(shape), shape[-1]
    chosen = range(size)[_places(size, shape, 0.01)]
    assert min(size, 200) <= len(chosen)
    assert min(columns, len(chosen)) == len({place % columns for place in chosen})


def test_a_tensor_without_a_gradient_is_unreached_and_one_that_does_not_move_is_not() -> None:
    """No weight changes at all, and one layer has no gradient."""
    model = network()
    model[0].weight.grad = None
    model[0].bias.grad.zero_()
    change = change_by(model, lambda _: None)
    assert frozenset({"0.weight", "0.bias"}) == change.unreached
    assert change.reached
    assert 0.0 == change.changed


def a_change(**fields: Any) -> Any:
    from kernel_launcher.worker.weights import Change

    usual = {"changed": 0.9, "ratio": 1e-3, "lowest_ratio": 1e-4, "lowest": "x"}
    return Change(**{**usual, "reached": True, "unreached": frozenset(), **fields})


def complaints_of(*, rounds_away: bool = False, **change: Any) -> list[str]:
    return complaints([a_change(**change)] * 3, rounds_away, 2e-5)


def test_a_run_that_learns_draws_no_complaint() -> None:
    """Nor does one that rounds by chance, where few weights change at a time and those are the right ones."""
    assert [] == complaints_of()
    assert [] == complaints_of(rounds_away=True)
    assert [] == complaints_of(changed=0.04)
    assert [] == complaints_of(unreached=frozenset({"model.norm.weight"}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"changed": 0.04, "rounds_away": True}, "rounding loses most of the training: an update changes 4.0% of"),
        ({"changed": 0.0, "rounds_away": True}, "rounding loses most of the training: an update changes 0.0% of"),
        ({"changed": 0.0, "ratio": 0.0, "reached": False}, "no update changes any weight: no gradient reaches them"),
        ({"changed": 0.0, "ratio": 0.0}, "an update moves the weights by 0 of their size: at learning_rate = 2e-05"),
        ({"ratio": 3e-8}, "an update moves the weights by 3e-08 of their size: at learning_rate = 2e-05"),
        (
            {"unreached": frozenset({"layers.0.q_proj.lora_A.weight", "layers.0.q_proj.lora_B.weight", "norm"})},
            "2 adapter tensors did not change in 3 steps: no gradient reaches them (layers.0.q_proj.lora_A.weight, ",
        ),
    ],
)
def test_a_run_that_cannot_learn_is_told_why(change: dict[str, Any], said: str) -> None:
    """One reason, with the figure and the setting."""
    [complaint] = complaints_of(**change)
    assert complaint.startswith(said)


def test_an_update_of_the_size_of_the_weights_is_told() -> None:
    """With the figure and the setting. An update of weights that are all zero has no such size."""
    said = overshoots(a_change(ratio=10417.66), 1, 1000.0)
    assert said is not None
    assert said.startswith("the update of step 1 is 10,417.66 times the size of the weights that it changes: at ")
    assert "learning_rate = 1000 " in said
    assert [None, None] == [overshoots(a_change(ratio=ratio), 1, 2e-3) for ratio in (0.4, math.inf)]


def course(*steps: tuple[float, float], guessing: float = 10.8) -> list[list[str]]:
    """What is said after each step of this loss and this norm of the gradient."""
    told = Course(guessing, 2e-4)
    return [list(told.see(loss, gradient)) for loss, gradient in steps]


def test_a_gradient_that_is_gone_is_told_once() -> None:
    """At the third step without one; not again when it comes back and goes."""
    gone = [(10.8, 0.0)] * 3
    said = course((2.0, 1.0), *gone, (10.8, 1.0), *gone)
    assert [3] == [step for step, reasons in enumerate(said) if reasons]
    assert said[3][0].startswith("for 3 steps every gradient was zero, with the loss at 10.8: ")
    assert said[3][0].endswith("Lower learning_rate = 0.0002.")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(0.69, 1.0), *[(0.0, 0.0)] * 9], id="nothing is left to learn"),
        pytest.param([(0.69, 1.0), *[(2e-22, 0.0)] * 9], id="what is left of the loss underflows in the norm"),
        pytest.param([(2.0, 1.0), *[(2.0, 0.0), (2.0, 0.0), (2.0, 1e-30)] * 4], id="the gradient comes back"),
        pytest.param([(2.0, 0.0)] * 9, id="there never was one, which the first updates tell"),
        pytest.param([(0.2, 1.0), *[(3.5, 1.0)] * 40], id="the first row was an easy one"),
        pytest.param([(10.8, 1.0)] * 40, id="an untrained model guesses"),
        pytest.param([(2.0, 1.0), *[(12.0, 1.0)] * 9, (4.0, 1.0)] * 4, id="hard rows, and others"),
        pytest.param([(0.69, 1.0), *[(3.0, 1.0), (0.1, 1.0)] * 20], id="noisy preferences"),
        pytest.param([(25.0, 1.0), *[(36.0, 1.0)] * 20], id="a loss that begins high, as ipo does"),
    ],
)
def test_what_may_come_about_in_a_sane_run_is_no_reason_to_warn(steps: list[tuple[float, float]]) -> None:
    assert not any(course(*steps))


@pytest.mark.parametrize(("first", "then"), [(2.0, 7.5), (2.0, 10.8), (0.69, 40.0), (10.8, 22.0)])
def test_a_loss_that_stays_far_above_its_start_is_told_once(first: float, then: float) -> None:
    """After ten steps: of words, as of preferences, as of an untrained model."""
    said = course((first, 1.0), *[(then, 1.0)] * 30)
    assert [10] == [step for step, reasons in enumerate(said) if reasons]
    assert f"and it began at {first:.3g}: the updates do harm. Lower learning_rate" in said[10][0]


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


@pytest.mark.parametrize("settings", [{}, {"lora_rank": 4}], ids=["full", "adapter"])
def test_a_rate_that_destroys_the_model_is_told(sample: Sample, tmp_path: Path, settings: dict[str, Any]) -> None:
    """At the first update, by its size; what follows from it is told when it is seen."""
    plan = small_plan(max_steps=8, micro_batch_size=2, learning_rate=1000.0, **settings)
    first, *later = [told["message"] for told in small_run(sample, tmp_path, ROWS, plan).of("warning")]
    assert first.startswith("the update of step 1 is ")
    assert all(message.startswith("for ") for message in later)


def test_an_adapter_that_does_not_move_for_its_rate_is_not_called_unreached(sample: Sample, tmp_path: Path) -> None:
    """Its updates round away, and a gradient reaches it."""
    plan = small_plan(max_steps=4, micro_batch_size=2, lora_rank=4, learning_rate=1e-12)
    [warning] = small_run(sample, tmp_path, ROWS, plan).of("warning")
    assert warning["message"].startswith("an update moves the weights by ")
