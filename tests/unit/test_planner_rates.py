"""What a plan says of a learning rate or a rank that is far from what is usual."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_launcher.facts.catalogue import facts_of
from kernel_launcher.facts.machine import hardware_for
from kernel_launcher.planner import Hardware, ModelFacts, make_plan
from kernel_launcher.spec import read_spec

METHODS = [
    {"lora_rank": lora_rank, "method": method}
    for lora_rank in (None, 8)
    for method in ("sft_text", "dpo")
]  # fmt: skip


def warnings(base: str = "Qwen/Qwen3-4B", **settings: Any) -> tuple[str, ...]:
    """Of a plan with room enough, on one GPU."""
    hardware = hardware_for("H100-80GB")
    assert isinstance(hardware, Hardware)
    spec = read_spec({"base_model": base, "gpu_type": "H100-80GB", "gpu_count": 1, **settings})
    return make_plan(spec, hardware, facts_of(base) or ModelFacts(param_count=10**6)).warnings


def usual(**settings: Any) -> float:
    hardware = hardware_for("H100-80GB")
    assert isinstance(hardware, Hardware)
    rate = make_plan(read_spec({"base_model": "a/b", **settings}), hardware, ModelFacts(param_count=10**10)).method
    assert rate.learning_rate is not None
    return rate.learning_rate


@pytest.mark.parametrize("settings", METHODS)
def test_a_learning_rate_far_from_the_usual_one_is_told(settings: dict[str, Any]) -> None:
    """By which factor, and what is usual: beyond a hundred times as much, and below a thousandth."""
    rate = usual(**settings)
    (above,) = warnings(**settings, learning_rate=200 * rate)
    assert f"learning_rate = {200 * rate:g} is 200 times the {rate:g} that is usual for " in above
    (below,) = warnings(**settings, learning_rate=rate / 5000)
    assert f"learning_rate = {rate / 5000:g} is 1/5,000 of the {rate:g} that is usual for " in below
    for factor in (None, 90, 10, 1, 0.1, 0.002):
        assert () == warnings(**settings, learning_rate=factor and factor * rate)


def test_what_is_usual_for_adam_is_nothing_to_measure_plain_descent_by() -> None:
    """Its steps are the gradients times the rate: 0.1 is a common one."""
    assert () == warnings(optim="sgd", learning_rate=0.1)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"lora_rank": 1024}, None),
        ({"lora_rank": 1025}, "lora_rank = 1,025 is past the smaller side of its layers (k_proj, v_proj: 1,024):"),
        ({"lora_rank": 2561}, "(k_proj, v_proj: 1,024; q_proj, o_proj, gate_proj, up_proj, down_proj: 2,560):"),
        ({"lora_rank": 2000, "lora_target_modules": ["q_proj"]}, None),
        ({"lora_rank": 2000, "base": "no/facts"}, None),
    ],
)
def test_a_rank_without_a_point_is_told(settings: dict[str, Any], told: str | None) -> None:
    """With the layers of which it is past the smaller side, where their shape is known."""
    said = [warning for warning in warnings(**settings) if "lora_rank" in warning]
    assert (told is not None) == bool(said)
    assert told is None or told in said[0]
