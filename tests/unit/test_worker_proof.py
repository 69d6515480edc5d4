"""What a rank holds is compared with its plan, and a run that does not keep it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernel_launcher.launcher.verdict import ATTRIBUTION
from kernel_launcher.spec.fields import Method
from kernel_launcher.worker.errors import PlanNotKept

pytestmark = pytest.mark.torch


def plan(stage: int, ranks: int = 2, precision: str = "bf16") -> Any:
    method = Method.model_validate({"zero_stage": stage, "precision": precision})
    return SimpleNamespace(method=method, world_size=ranks)


@pytest.fixture
def model() -> Any:
    import torch

    return torch.nn.Linear(4, 2, dtype=torch.bfloat16)


def test_whole_weights_are_no_sharded_ones(model: Any) -> None:
    """A quiet fall back to DDP is named, with the first weight that shows it."""
    from kernel_launcher.worker.proof import check_placements

    check_placements(model, plan(0))
    expected = r"zero_stage = 3 on 2 ranks .* Shard\(0\) of 2, and 2 are not: weight is whole"
    with pytest.raises(PlanNotKept, match=expected):
        check_placements(model, plan(3))
    assert PlanNotKept.kind in ATTRIBUTION


@pytest.mark.parametrize(("stage", "wanted"), [(0, "DistributedDataParallel"), (2, "FSDPModule"), (3, "FSDPModule")])
def test_gradients_are_averaged_as_planned(model: Any, stage: int, wanted: str) -> None:
    """A model that nothing was wrapped around would train alone on each rank. One rank needs no wrapper."""
    from kernel_launcher.worker.proof import check_wrapper

    with pytest.raises(PlanNotKept, match=f"means {wanted}, and the model is a Linear"):
        check_wrapper(model, plan(stage))
    check_wrapper(model, plan(0, ranks=1))


def test_masters_are_as_wide_as_planned(model: Any) -> None:
    """bfloat16 where float32 was planned loses updates; a frozen weight may be so."""
    from kernel_launcher.worker.precision import Precision
    from kernel_launcher.worker.proof import check_formats

    precision = Precision.of(plan(0, precision="bf16_mixed").method)
    with pytest.raises(PlanNotKept, match=r"weight is trained in torch\.bfloat16, and the plan says torch\.float32"):
        check_formats(model, precision)
    check_formats(model.requires_grad_(False), precision)
    check_formats(model.requires_grad_().float(), precision)


def test_a_fingerprint_tells_weights_and_buffers_apart(model: Any) -> None:
    """One bit of either shows; what is equal is equal, whatever the format."""
    import torch

    from kernel_launcher.worker.proof import digest, fingerprint

    model.register_buffer("rate", torch.ones(3))
    model.register_buffer("flag", torch.tensor([True]), persistent=False)
    before = digest(fingerprint(model))
    assert before == digest(fingerprint(model))
    seen = {before}
    for tensor in (model.weight.data, model.rate, model.flag):
        tensor.view(-1)[0] = 0
        seen.add(digest(fingerprint(model)))
    assert 4 == len(seen)
