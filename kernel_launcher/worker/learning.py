"""Whether a run learns: what its updates do to the weights, and how loss and gradient go on.

A learning rate that is too small for the number format leaves the loss as it is and raises nothing; one that is far
too large destroys the model and raises nothing either.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from kernel_launcher.worker.complaints import Course, complaints, overshoots
from kernel_launcher.worker.optimizer import StochasticAdamW
from kernel_launcher.worker.weights import WeightSample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernel_launcher.worker.weights import Change

# Steps that are measured: each at first, then one in ten. One costs 20 ms for the 270 tensors of a model of 135M
# weights on a busy processor core, where a step takes 3.5 s.
_EACH_UNTIL, _ONE_IN = 10, 10
_JUDGED_STEPS = 3


class Learning(TrainerCallback):
    """Measures what updates do, and warns once of each reason for which a run does not learn.

    Args:
        warn: Told of it, by rank 0.

    Attributes:
        metrics: Of the last step, if it was measured.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.metrics: dict[str, float] = {}
        self._warn = warn
        self._sample: WeightSample | None = None
        self._course: Course | None = None
        self._judged: list[Change] = []
        self._overshot = False

    def on_train_begin(self, args: Any, state: Any, *_: Any, model: Any, **__: Any) -> None:
        """Choose the sample; where each rank holds all weights, rank 0 looks for all."""
        trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        if state.is_world_process_zero or any(isinstance(parameter, DTensor) for _, parameter in trained):
            self._sample = WeightSample(trained)
        if state.is_world_process_zero:
            vocabulary = model.get_input_embeddings().num_embeddings
            self._course = Course(math.log(vocabulary), args.learning_rate)

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
        if not state.is_world_process_zero:
            return
        if not self._overshot and (reason := overshoots(change, state.global_step + 1, args.learning_rate)):
            self._overshot = True
            self._warn(reason)
        # In a warm-up small updates are meant.
        if len(self._judged) < _JUDGED_STEPS and optimizer.param_groups[0]["lr"] >= args.learning_rate / 2:
            self._judged.append(change)
            if len(self._judged) == _JUDGED_STEPS:
                for reason in complaints(self._judged, _rounds_away(optimizer), args.learning_rate):
                    self._warn(reason)

    def on_log(self, _: Any, __: Any, ___: Any, logs: Mapping[str, float], **____: Any) -> None:
        """Take the step's loss and gradient; the summary at the end of the run has none."""
        if self._course is not None and "loss" in logs:
            for reason in self._course.see(logs["loss"], logs["grad_norm"]):
                self._warn(reason)


def _rounds_away(optimizer: Any) -> bool:
    """Whether weights in half precision are rounded to nearest."""
    inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
    if isinstance(inner, StochasticAdamW):
        return False
    return any(parameter.dtype.itemsize < 4 for group in inner.param_groups for parameter in group["params"])


def _is_measured(step: int) -> bool:
    return step <= _EACH_UNTIL or step % _ONE_IN == 0
