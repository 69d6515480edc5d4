"""Whether a model has weights that a step may leave without a gradient."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Sample

pytestmark = pytest.mark.torch


@pytest.fixture
def model(sample: Sample) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(sample.tiny)


def look(model: Any) -> tuple[bool, list[str]]:
    import torch

    from kernel_launcher.worker.unused import look_for_unused

    handler = SimpleNamespace(find_unused_parameters=False)
    said: list[str] = []
    trainer = SimpleNamespace(model=model, accelerator=SimpleNamespace(ddp_handler=handler))
    look_for_unused(trainer, torch.device("cpu"), said.append)
    return handler.find_unused_parameters, said


def test_dense_text_uses_all(model: Any) -> None:
    """The search stays off, and the look leaves nothing behind."""
    import torch

    before = torch.get_rng_state()
    assert (False, []) == look(model)
    assert torch.equal(before, torch.get_rng_state())
    assert all(weight.grad is None for weight in model.parameters())


def test_a_branch_that_takes_no_part_is_named(model: Any) -> None:
    """DDP would wait for its gradient for ever; frozen, it has none."""
    import torch

    model.aside = torch.nn.Linear(2, 2)
    on, said = look(model)
    assert on
    expected = "2 trained weights take no part in a forward pass, first aside.weight"
    assert [f"ddp_find_unused_parameters is on: {expected}."] == said
    model.aside.requires_grad_(False)
    assert (False, []) == look(model)


def test_experts_in_a_list_may_be_idle(model: Any) -> None:
    """Which of them a step comes by depends on its rows: no single look can tell."""
    import torch

    model.model.layers[0].mlp.experts = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))
    on, said = look(model)
    assert on
    assert "a step need not come by each of the 3 model.layers.0.mlp.experts" in said[0]
