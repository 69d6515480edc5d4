"""FSDP2 for any causal language model: each decoder layer a unit, the embedding and the output head apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

if TYPE_CHECKING:
    import torch

    from kernel_launcher.spec.fields import Method
    from kernel_launcher.worker.precision import Precision


def shard(model: Any, method: Method, precision: Precision, device: torch.device, *, trained: bool = True) -> None:
    """Spread a model's parameters over all ranks, in place.

    Args:
        model: A transformers model, or a PEFT model around one, on any device.
        method: Its ``zero_stage`` is 2 or 3.
        precision: The formats of the plan.
        device: Where this rank computes.
        trained: Whether there is a backward pass: without one, nothing else lets go of what was gathered.
    """
    common: dict[str, Any] = {
        "mesh": init_device_mesh(device.type, (dist.get_world_size(),)),
        "mp_policy": precision.policy,
        "offload_policy": CPUOffloadPolicy() if method.cpu_offload else OffloadPolicy(),
    }
    reshard = method.zero_stage == 3 or not trained
    for layer in decoder_layers(model):
        fully_shard(layer, reshard_after_forward=reshard, **common)
    if trained:
        _shard_ends(model, reshard_after_forward=reshard, **common)
    fully_shard(model, reshard_after_forward=not trained, **common)


def _shard_ends(model: Any, *, reshard_after_forward: bool, **common: Any) -> None:
    """The embedding, and the head with the norm before it: TRL reads the head's weight, and does not call it."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tail = [_last_norm(model), head]
    if head is not None and head.weight is embedding.weight:
        tail.append(embedding)
    else:
        fully_shard(embedding, reshard_after_forward=reshard_after_forward, **common)
    if None not in tail:  # or else it is gathered with the root, at the start
        fully_shard(tail, reshard_after_forward=False, **common)


def decoder_layers(model: nn.Module) -> nn.ModuleList | tuple[()]:
    """The repeated blocks: of the lists of like modules that a model has, the one with the most parameters."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=_numbers, default=())


def _last_norm(model: nn.Module) -> nn.Module | None:
    """The norm beside the layers, before the head."""
    layers = decoder_layers(model)
    decoder = next((module for module in model.modules() if layers in list(module.children())), None)
    if decoder is None:
        return None
    norms = [module for module in decoder.children() if "norm" in type(module).__name__.lower()]
    return norms[-1] if norms else None


def _numbers(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
