"""Which number formats a plan means."""

from __future__ import annotations

import pytest

from kernel_launcher.spec.fields import Method

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("precision", "lora_rank", "loaded", "trained", "saved"),
    [
        ("bf16", None, "bfloat16", "bfloat16", "bfloat16"),
        ("bf16_mixed", None, "float32", "float32", "bfloat16"),
        ("fp32", None, "float32", "float32", "float32"),
        ("bf16", 4, "bfloat16", "float32", "float32"),
        ("bf16_mixed", 4, "bfloat16", "float32", "float32"),
        ("fp32", 4, "float32", "float32", "float32"),
    ],
)
def test_weights_have_the_format_of_the_precision(
    precision: str, lora_rank: int | None, loaded: str, trained: str, saved: str
) -> None:
    """Masters are float32 where all weights are trained; a frozen base needs none, and its adapter is always so."""
    from kernel_launcher.worker.precision import Precision

    found = Precision.of(Method.model_validate({"precision": precision, "lora_rank": lora_rank, "zero_stage": 0}))
    assert [f"torch.{name}" for name in (loaded, trained, saved)] == [
        str(dtype) for dtype in (found.loaded, found.trained, found.saved)
    ]


@pytest.mark.parametrize(
    ("precision", "stage", "autocast", "gathered", "reduced"),
    [
        ("bf16_mixed", 0, True, "bfloat16", "float32"),
        ("bf16_mixed", 3, False, "bfloat16", "float32"),
        ("bf16", 3, False, "None", "None"),
        ("fp32", 2, False, "None", "None"),
    ],
)
def test_mixed_is_autocast_or_narrow_gathering_and_never_both(
    precision: str, stage: int, autocast: bool, gathered: str, reduced: str
) -> None:
    """Outputs are never rounded, and gradients of float32 masters travel in float32."""
    from kernel_launcher.worker.precision import Precision

    found = Precision.of(Method.model_validate({"precision": precision, "zero_stage": stage}))
    policy = found.policy
    assert autocast == found.autocast
    assert (gathered, reduced, None) == (
        str(policy.param_dtype).removeprefix("torch."),
        str(policy.reduce_dtype).removeprefix("torch."),
        policy.output_dtype,
    )
