"""AdamW for weights that are kept in bfloat16 alone: 8 bytes a parameter, and still every update counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor, Shard
from torch.optim.adamw import adamw

from kernel_launcher.planner.workload import STOCHASTIC_CHUNK
from kernel_launcher.worker.rounding import Chance, key_of, round_into

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kernel_launcher.spec.fields import Method


def own_optimizer(method: Method) -> tuple[type[torch.optim.Optimizer], dict[str, Any]] | None:
    """Class and settings as the Trainer takes them, or None where its own optimizer is right."""
    from kernel_launcher.planner.outlook import optimizer_kind

    if optimizer_kind(method) != "stochastic":
        return None
    return StochasticAdamW, {
        "lr": method.learning_rate, "weight_decay": method.weight_decay, "seed": method.seed,
    }  # fmt: skip


class StochasticAdamW(torch.optim.Optimizer):
    """AdamW that computes in float32, and rounds bfloat16 weights and second moments up or down by chance.

    A bfloat16 has 8 significant bits: at a learning rate of 2e-5 nearly every update is smaller than half a step of
    its weight, and rounding to nearest forgets it; so it does with a second moment, which moves by a thousandth.
    Rounded by chance, in proportion to what is lost, both are right on average.

    The chance hangs on the seed, the step, the parameter's place and the element's place in the whole parameter: a
    run repeats, and DDP and FSDP2 on any number of ranks round alike. Parameters in other formats are updated as
    ``torch.optim.AdamW`` does.

    Args:
        params: Parameters or groups of them; DTensors are replicated, or sharded along their first dimension.
        lr: Learning rate.
        betas: Of the two moments.
        eps: Added to the root of the second moment.
        weight_decay: Decoupled.
        seed: Of the rounding.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        seed: int = 0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "seed": seed})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        workspaces: dict[torch.device, _Workspace] = {}  # given back at the end: no activation finds it in its way
        for place, (weight, group) in enumerate((w, g) for g in self.param_groups for w in g["params"]):
            if weight.grad is None:
                continue
            state = self._state_of(weight)
            before = int(state["step"])
            state["step"] += 1
            gradient = weight.grad.contiguous()
            tensors = [_local(tensor) for tensor in (weight, gradient, state["exp_avg"], state["exp_avg_sq"])]
            if weight.dtype != torch.bfloat16:
                _adamw(tensors, group, before)
                continue
            device = tensors[0].device
            if device not in workspaces:
                workspaces[device] = _Workspace(device, self._largest())
            key = key_of(group["seed"], before, place)
            workspaces[device].update(tensors, group, before, key, _first_element(weight))
        return loss

    def _state_of(self, weight: torch.Tensor) -> dict[str, torch.Tensor]:
        state: dict[str, torch.Tensor] = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        return state

    def _largest(self) -> int:
        return max(_local(weight).numel() for group in self.param_groups for weight in group["params"])


class _Workspace:
    """Memory for the update of one chunk of a parameter (STOCHASTIC_BYTES an element), and the update itself."""

    def __init__(self, device: torch.device, largest: int) -> None:
        self.size = min(max(1, largest), STOCHASTIC_CHUNK["cpu" if device.type == "cpu" else "cuda"])
        self._wide = torch.empty(4, self.size, dtype=torch.float32, device=device)
        self._chance = Chance(device, self.size)

    def update(self, tensors: list[torch.Tensor], group: dict[str, Any], before: int, key: int, start: int) -> None:
        """The step after ``before`` others on weight, gradient and moments, all bfloat16.

        Args:
            tensors: This rank's parts.
            group: Settings.
            before: Earlier steps.
            key: Of the random bits.
            start: Where the parts begin in the whole parameter.
        """
        for chunks in zip(*(tensor.view(-1).split(self.size) for tensor in tensors), strict=True):
            count = len(chunks[0])
            wide = [room[:count].copy_(chunk) for room, chunk in zip(self._wide, chunks, strict=True)]
            _adamw(wide, group, before)
            bits = self._chance.bits(key, start, count)
            # The same bits for both: each is right on average, whatever the other does.
            round_into(chunks[0], wide[0], bits)
            round_into(chunks[3], wide[3], bits)
            chunks[2].copy_(wide[2])  # moves by a tenth a step: rounded to nearest, it loses nothing
            start += count


def _adamw(tensors: list[torch.Tensor], group: dict[str, Any], before: int) -> None:
    weight, gradient, first, second = tensors
    beta1, beta2 = group["betas"]
    adamw(
        [weight], [gradient], [first], [second], [], [torch.full((), float(before), device=weight.device)],
        fused=True, amsgrad=False, beta1=beta1, beta2=beta2, lr=group["lr"], weight_decay=group["weight_decay"],
        eps=group["eps"], maximize=False,
    )  # fmt: skip


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _first_element(weight: torch.Tensor) -> int:
    """Where this rank's part begins in the whole parameter, counted in elements."""
    if not isinstance(weight, DTensor):
        return 0
    start = 0
    for dim, placement in enumerate(weight.placements):
        if placement == Shard(0):
            rows_each = -(-weight.shape[0] // weight.device_mesh.size(dim))
            start = weight.device_mesh.get_local_rank(dim) * rows_each * (weight.numel() // max(1, weight.shape[0]))
        elif not placement.is_replicate():
            raise ValueError(f"rounding by place is for shards along the first dimension, not {placement}.")
    return start
