"""Weights read by one rank and given to the others, tensor by tensor; and taken back at the end."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist
from torch.distributed.tensor import DTensor, distribute_tensor

from kernel_launcher.worker.rounding import narrowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

META = torch.device("meta")


def materialize(model: nn.Module, device: torch.device, *, offloaded: bool) -> None:
    """Give a model without memory its own, with any values; what was tied stays tied.

    Args:
        model: Built on ``meta``; sharded already, if it is to be.
        device: Where this rank computes.
        offloaded: Whether parameters stay in host memory.
    """
    model.to_empty(device="cpu" if offloaded else device)
    for module in model.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            module.register_buffer(name, buffer.to(device), persistent=name not in module._non_persistent_buffers_set)  # noqa: SLF001
    for module in model.modules():
        if hasattr(module, "tie_weights"):
            module.tie_weights()


@torch.no_grad()
def spread(model: nn.Module, source: nn.Module | None, device: torch.device) -> None:
    """Fill a model on every rank with what rank 0 has read; never more than one whole tensor at a time.

    Args:
        model: With memory, sharded or not.
        source: The same model, whole, on rank 0; None on the others.
        device: Where this rank computes.
    """
    given = dict(tensors_of(source)) if source is not None else {}
    for name, tensor in tensors_of(model):
        whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        if source is not None:
            whole.copy_(given[name])
        dist.broadcast(whole, 0)
        if isinstance(tensor, DTensor):
            mine = distribute_tensor(whole, tensor.device_mesh, tensor.placements, src_data_rank=None)
            tensor.to_local().copy_(mine.to_local())
        else:
            tensor.copy_(whole)


@torch.no_grad()
def gather(model: Any, dtype: torch.dtype, seed: int, *, keep: bool) -> dict[str, torch.Tensor]:
    """What is saved, whole and in one format, in host memory; every rank must be here.

    Args:
        model: As it is spread: all of a model, or of one with an adapter the adapter alone.
        dtype: The format.
        seed: Of the rounding to it.
        keep: Whether this rank is the one that gets it; the others get nothing.
    """
    found = {}
    adapter = hasattr(model, "peft_config")
    for name, tensor in tensors_of(model):
        if tensor.requires_grad or not adapter:
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            if keep:
                found[name] = narrowed(name, whole.detach(), dtype, seed).cpu()
    return found


def tensors_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers by name, also those that are not saved, such as rotary frequencies; tied ones once."""
    return chain(model.named_parameters(), model.named_buffers())


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def unwrapped(model: Any) -> Any:
    """The transformers model inside of an adapter's wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "peft_config") else model
