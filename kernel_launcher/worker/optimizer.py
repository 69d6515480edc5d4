"""AdamW for weights that are kept in bfloat16 alone: 8 bytes a parameter, and still every update counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor, Shard
from torch.optim.adamw import adamw

from kernel_launcher.planner.workload import STOCHASTIC_CHUNK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kernel_launcher.spec.fields import Method

_UPPER_HALF = -0x1_0000
_LAST_NAN = 0x7FFF_0000
# The odd multipliers of a well tested integer hash ("lowbias32").
_FIRST, _SECOND = 0x7FEB_352D, 0x846C_A68B
_MASK_32, _MASK_64 = (1 << 32) - 1, (1 << 64) - 1


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
            key = _mix(_mix(_mix(group["seed"]) + before) + place)
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
        self._places = torch.arange(self.size, dtype=torch.int32, device=device)
        self._hash = torch.empty(2, self.size, dtype=torch.int32, device=device)

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
            bits = self._bits(key, start, count)
            # The same bits for both: each is right on average, whatever the other does.
            _round_into(chunks[0], wide[0], bits)
            _round_into(chunks[3], wide[3], bits)
            chunks[2].copy_(wide[2])  # moves by a tenth a step: rounded to nearest, it loses nothing
            start += count

    def _bits(self, key: int, start: int, count: int) -> torch.Tensor:
        """16 random bits for each of the elements from ``start`` on: a hash of their places."""
        value, shifted = self._hash[0, :count], self._hash[1, :count]
        torch.add(self._places[:count], _int32(start + key), out=value)
        value.mul_(_int32(_FIRST))
        torch.bitwise_right_shift(value, 16, out=shifted)
        value.bitwise_xor_(shifted).add_(_int32(key >> 32)).mul_(_int32(_SECOND))
        return value.bitwise_right_shift_(16).bitwise_and_(0xFFFF)


def _adamw(tensors: list[torch.Tensor], group: dict[str, Any], before: int) -> None:
    weight, gradient, first, second = tensors
    beta1, beta2 = group["betas"]
    adamw(
        [weight], [gradient], [first], [second], [], [torch.full((), float(before), device=weight.device)],
        fused=True, amsgrad=False, beta1=beta1, beta2=beta2, lr=group["lr"], weight_decay=group["weight_decay"],
        eps=group["eps"], maximize=False,
    )  # fmt: skip


def _round_into(narrow: torch.Tensor, value: torch.Tensor, bits: torch.Tensor) -> None:
    """A bfloat16 is a float32's upper half; random bits added to the lower one carry as often as it is large."""
    # A NaN of CUDA has all bits set, and would carry over into minus zero.
    value.view(torch.int32).clamp_(max=_LAST_NAN).add_(bits).bitwise_and_(_UPPER_HALF)
    narrow.copy_(value)


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


def _mix(value: int) -> int:
    """64 well mixed bits of a number (splitmix64)."""
    value = (value + 0x9E37_79B9_7F4A_7C15) & _MASK_64
    value = ((value ^ (value >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK_64
    value = ((value ^ (value >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK_64
    return value ^ (value >> 31)


def _int32(value: int) -> int:
    """The lower 32 bits, as torch's int32 reads them."""
    value &= _MASK_32
    return value - (1 << 32) if value >> 31 else value
