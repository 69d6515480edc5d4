"""Weights that take no part in a step: DDP waits for their gradients, unless it is told to look for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

_PROBE_TOKENS = 8


def look_for_unused(trainer: Any, device: torch.device, warn: Callable[[str], None]) -> None:
    """Let DDP look for unused weights in each step where this model needs it; that costs a pass over its graph.

    Args:
        trainer: Before it wraps its model.
        device: Where the model is.
        warn: Told if so.
    """
    handler = trainer.accelerator.ddp_handler
    if handler.find_unused_parameters:
        return
    reason = why_unused(trainer.model, device)
    if reason:
        handler.find_unused_parameters = True
        warn(f"ddp_find_unused_parameters is on: {reason}.")


def why_unused(model: nn.Module, device: torch.device) -> str:
    """Why weights of a model may get no gradient; empty where all of them do."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] == "experts":
            return f"a step need not come by each of the {len(module)} {name}"
    idle = _idle(model, device)
    return f"{len(idle)} trained weights take no part in a forward pass, first {idle[0]}" if idle else ""


def _idle(model: Any, device: torch.device) -> list[str]:
    """Weights without a gradient after a pass of a few tokens."""
    ids = torch.arange(_PROBE_TOKENS, device=device).unsqueeze(0)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        model.train()
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    idle = [name for name, weight in trained if weight.grad is None]
    model.zero_grad(set_to_none=True)
    return idle
