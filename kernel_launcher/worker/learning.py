"""Whether the updates reach the weights: measured on a fixed sample of them, before and after an optimizer step.

A learning rate that is too small for the number format leaves the loss as it is and raises nothing. The sample is
every n-th element of each trained tensor, about 100,000 in all on a rank: 0.1 % of accuracy for a share of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import distributed as dist
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from kernel_launcher.worker.optimizer import StochasticAdamW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_ELEMENTS = 100_000
_LEAST_ELEMENTS = 256  # of one tensor
# Steps that are measured: each at first, then one in ten. One costs 20 ms for the 270 tensors of a model of 135M
# weights on a busy processor core, where a step takes 3.5 s.
_EACH_UNTIL, _ONE_IN = 10, 10
_JUDGED_STEPS = 3
_LEAST_CHANGED = 0.1
_LEAST_RATIO = 1e-6
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Change:
    """What one update did to the trained weights, estimated for all of them.

    Attributes:
        changed: Of the weights that had a gradient, the share whose value is another now.
        ratio: Norm of the update by norm of the weights.
        lowest_ratio: The same for the layer where it is the smallest.
        lowest: That layer.
        still: Tensors of whose sample nothing changed.
    """

    changed: float
    ratio: float
    lowest_ratio: float
    lowest: str
    still: frozenset[str]

    def to_metrics(self) -> dict[str, float]:
        """As a ``step`` event has it."""
        return {
            "weights_changed": self.changed,
            "update_ratio": self.ratio,
            "update_ratio_lowest": self.lowest_ratio,
        }


class WeightSample:
    """A fixed sample of trained parameters, and of their gradients.

    Args:
        parameters: By name. DTensors are sampled on each rank where they lie, and summed over the ranks: there, every
            rank must call ``measure`` at once.
    """

    def __init__(self, parameters: Iterable[tuple[str, torch.nn.Parameter]]) -> None:
        self._names, self._parameters = zip(*parameters, strict=True)
        self._sharded = any(isinstance(parameter, DTensor) for parameter in self._parameters)
        sizes = [_local(parameter).numel() for parameter in self._parameters]
        self._places = [
            _places(size, parameter.shape, _ELEMENTS / max(1, sum(sizes)))
            for size, parameter in zip(sizes, self._parameters, strict=True)
        ]
        counts = [len(range(*place.indices(size))) for place, size in zip(self._places, sizes, strict=True)]
        device = _local(self._parameters[0]).device
        self._counts = torch.tensor(counts, device=device)
        # How many elements each one of the sample stands for.
        self._stands_for = torch.tensor([size / max(1, n) for size, n in zip(sizes, counts, strict=True)])
        self._before: tuple[torch.Tensor, torch.Tensor] | None = None

    @torch.no_grad()
    def note(self) -> None:
        """Take the weights and gradients as they are before the update."""
        gradients = [parameter.grad for parameter in self._parameters]
        self._before = self._take(self._parameters), self._take(gradients)

    @torch.no_grad()
    def measure(self) -> Change:
        """What the update since ``note`` did."""
        assert self._before is not None
        (before, gradients), self._before = self._before, None
        update = self._take(self._parameters) - before
        asked, moved = gradients != 0, update != 0
        columns = torch.stack([asked, asked & moved, moved, update.square(), before.square()], dim=1).double()
        sums = torch.segment_reduce(columns, "sum", lengths=self._counts).cpu() * self._stands_for[:, None]
        if self._sharded:
            sums = _over_ranks(sums)
        return self._change([_Sums(*row) for row in sums.tolist()])

    def _take(self, tensors: Sequence[torch.Tensor | None]) -> torch.Tensor:
        parts = [
            torch.zeros(count, device=self._counts.device) if tensor is None else _local(tensor).reshape(-1)[place]
            for tensor, place, count in zip(tensors, self._places, self._counts.tolist(), strict=True)
        ]
        return torch.cat([part.float() for part in parts])

    def _change(self, rows: list[_Sums]) -> Change:
        layers: dict[str, _Sums] = {}
        for name, row in zip(self._names, rows, strict=True):
            layers[_layer(name)] = layers.get(_layer(name), _NOTHING).plus(row)
        whole = _NOTHING
        for row in layers.values():
            whole = whole.plus(row)
        lowest = min(layers, key=lambda layer: layers[layer].ratio)
        return Change(
            changed=whole.asked_and_moved / whole.asked if whole.asked else 0.0,
            ratio=whole.ratio,
            lowest_ratio=layers[lowest].ratio,
            lowest=lowest,
            still=frozenset(name for name, row in zip(self._names, rows, strict=True) if not row.moved),
        )


class Learning(TrainerCallback):
    """Measures what updates do, and warns once of a run that cannot learn as it is set.

    Args:
        warn: Told of it, by rank 0.

    Attributes:
        metrics: Of the last step, if it was measured.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.metrics: dict[str, float] = {}
        self._warn = warn
        self._sample: WeightSample | None = None
        self._judged: list[Change] = []

    def on_train_begin(self, _: Any, state: Any, *__: Any, model: Any, **___: Any) -> None:
        """Choose the sample; where each rank holds all weights, rank 0 looks for all."""
        trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        if state.is_world_process_zero or any(isinstance(parameter, DTensor) for _, parameter in trained):
            self._sample = WeightSample(trained)

    def on_pre_optimizer_step(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        """Before the update; the gradients are clipped already."""
        self.metrics = {}
        if self._sample is not None and _is_measured(state.global_step + 1):
            self._sample.note()

    def on_optimizer_step(self, args: Any, state: Any, *_: Any, optimizer: Any, **__: Any) -> None:
        """After it."""
        if self._sample is None or not _is_measured(state.global_step + 1):
            return
        change = self._sample.measure()
        self.metrics = change.to_metrics()
        # In a warm-up small updates are meant.
        if len(self._judged) < _JUDGED_STEPS and optimizer.param_groups[0]["lr"] >= args.learning_rate / 2:
            self._judged.append(change)
            if len(self._judged) == _JUDGED_STEPS and state.is_world_process_zero:
                for reason in complaints(self._judged, _rounds_away(optimizer), args.learning_rate):
                    self._warn(reason)


def complaints(changes: Sequence[Change], rounds_away: bool, learning_rate: float) -> list[str]:
    """Why a run cannot learn as it is set, from the changes of its first steps at full learning rate.

    Args:
        changes: At least one.
        rounds_away: Whether what is smaller than half a step of a weight's format is lost.
        learning_rate: The peak.
    """
    changed = sum(change.changed for change in changes) / len(changes)
    ratio = sum(change.ratio for change in changes) / len(changes)
    still = sorted(frozenset.intersection(*(change.still for change in changes)))
    adapters = [name for name in still if "lora_" in name]
    if not any(change.changed for change in changes) and not rounds_away:
        return ["no update changes any weight: no gradient reaches them, and this run learns nothing."]
    found = []
    if rounds_away and changed < _LEAST_CHANGED:
        found.append(
            f"rounding loses most of the training: an update changes {changed:.1%} of the weights that have a "
            f"gradient, for steps of learning_rate = {learning_rate:g} are too small for bfloat16. "
            'Use precision = "bf16_mixed" or lora_rank, whose trained weights are float32.'
        )
    if ratio < _LEAST_RATIO:
        found.append(
            f"an update moves the weights by {ratio:.1g} of their size: at learning_rate = {learning_rate:g} this "
            "run hardly learns. Raise learning_rate."
        )
    if adapters:
        few = ", ".join(adapters[:_NAMED])
        found.append(
            f"{len(adapters)} adapter tensors did not change in {len(changes)} steps: no gradient reaches them "
            f"({few}{', …' if len(adapters) > _NAMED else ''}). Check lora_target_modules."
        )
    return found


class _Sums(NamedTuple):
    """Over the elements of a tensor: those with a gradient, those of them that changed, all that changed, squares."""

    asked: float
    asked_and_moved: float
    moved: float
    update: float
    weight: float

    def plus(self, other: _Sums) -> _Sums:
        return _Sums(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def ratio(self) -> float:
        """An adapter's first half is zero at first: what it grows by has no size to compare with."""
        return math.sqrt(self.update / self.weight) if self.weight else math.inf if self.update else 0.0


_NOTHING = _Sums(0.0, 0.0, 0.0, 0.0, 0.0)


def _rounds_away(optimizer: Any) -> bool:
    """Whether weights in half precision are rounded to nearest."""
    inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
    if isinstance(inner, StochasticAdamW):
        return False
    return any(parameter.dtype.itemsize < 4 for group in inner.param_groups for parameter in group["params"])


def _is_measured(step: int) -> bool:
    return step <= _EACH_UNTIL or step % _ONE_IN == 0


def _places(size: int, shape: Sequence[int], share: float) -> slice:
    """Every n-th of the elements of a (local) tensor, for an n that goes through all of its columns."""
    count = max(1, min(size, max(_LEAST_ELEMENTS, round(size * share))))
    step = max(1, size // count)
    while step > 1 and math.gcd(step, shape[-1] if shape else 1) > 1:
        step += 1
    return slice(0, None, step)


def _layer(name: str) -> str:
    """``model.layers.3`` for all parameters of that layer; a parameter outside of any is its own."""
    parts = name.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else name


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _over_ranks(sums: torch.Tensor) -> torch.Tensor:
    # Offloaded weights lie in host memory, where NCCL does not look.
    total = sums.to("cpu" if dist.get_backend() == "gloo" else "cuda")
    dist.all_reduce(total)
    return total.cpu()
