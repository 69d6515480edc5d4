"""What is reported of each optimizer step, and the end of a run whose loss is not finite."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist
from transformers import TrainerCallback

from kernel_launcher.worker.errors import NonFiniteLoss
from kernel_launcher.worker.packing import TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernel_launcher.worker.reporter import Reporter


class TokenCount:
    """Tokens of each step over all ranks, without padding.

    The sum over ranks runs while the step computes. TRL's own count is too small at the end of an epoch: there it
    keeps as many ranks' counts as rows are left (five rows of 10 to 50 tokens on two ranks: 150 instead of 180).
    """

    def __init__(self, world_size: int) -> None:
        self.total = 0
        self._world_size = world_size
        self._count: torch.Tensor | None = None
        self._work: dist.Work | None = None

    def begin(self, batches: Sequence[dict[str, torch.Tensor]]) -> None:
        """Count the micro-batches of the step that begins.

        Those of packed rows have no attention mask, and a count that the model must not see.
        """
        counts = [batch.pop(TOKENS) if TOKENS in batch else batch["attention_mask"] for batch in batches]
        self._count = torch.stack([count.sum() for count in counts]).sum()
        if self._world_size > 1:
            self._work = dist.all_reduce(self._count, async_op=True)

    def end(self) -> int:
        """The tokens of the step that has ended."""
        if self._work is not None:
            self._work.wait()
        assert self._count is not None
        count = int(self._count.item())
        self.total += count
        return count


class StepReporter(TrainerCallback):
    """Rank 0 reports each optimizer step; every rank stops at the first value that is not finite.

    The Trainer averages the logged loss over all ranks, so each of them sees the same value and stops at the same
    step.

    Args:
        tokens: Of the step.
        own_losses: Of this rank, in the step.
        reporter: Told of each step.
        more: Asked for further metrics of the step.
    """

    def __init__(
        self,
        tokens: TokenCount,
        own_losses: list[torch.Tensor],
        reporter: Reporter,
        more: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._tokens = tokens
        self._more = more
        self._own_losses = own_losses
        self._reporter = reporter
        self._mark = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Start the clock."""
        self._mark = time.perf_counter()

    def off_the_clock(self, seconds: float) -> None:
        """Leave out time that was not training."""
        self._mark += seconds

    def on_step_begin(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        """Tell the first step from the rest: it compiles, allocates, and shows whether memory is enough."""
        if state.global_step == 0:
            self._reporter.enter("first_step")

    def on_log(self, _: Any, state: Any, __: Any, logs: Mapping[str, float], **___: Any) -> None:
        """Take the step's values; the Trainer calls this after each one."""
        if "loss" not in logs:  # the summary at the end of the run
            return
        metrics = self._metrics(logs)
        bad = [name for name in ("loss", "grad_norm") if not math.isfinite(metrics[name])]
        if state.is_world_process_zero:
            self._report(state, metrics)
        self._reporter.step = state.global_step
        if bad:
            raise _not_finite(state.global_step, metrics, bad, self._own_losses)
        if state.global_step == 1:
            self._reporter.enter("train")

    def _metrics(self, logs: Mapping[str, float]) -> dict[str, float]:
        tokens = self._tokens.end()
        now = time.perf_counter()
        seconds, self._mark = now - self._mark, now
        return {
            "loss": logs["loss"],
            "learning_rate": logs["learning_rate"],
            "grad_norm": logs["grad_norm"],
            "tokens_per_second": tokens / seconds,
            "step_seconds": seconds,
            "tokens": self._tokens.total,
            "epoch": logs["epoch"],
            **{name: value for name, value in logs.items() if name.startswith("rewards/")},
            **self._more(),
        }

    def _report(self, state: Any, metrics: dict[str, float]) -> None:
        self._reporter.report_step(state.global_step, state.max_steps, metrics)
        self._reporter.say(
            f"step {state.global_step}/{state.max_steps}  loss {metrics['loss']:.4f}  "
            f"grad_norm {metrics['grad_norm']:.3f}  lr {metrics['learning_rate']:.3g}  "
            f"{metrics['tokens_per_second']:,.0f} tokens/s  {metrics['step_seconds']:.2f} s"
        )


def _not_finite(
    step: int, metrics: Mapping[str, float], bad: list[str], own_losses: list[torch.Tensor]
) -> NonFiniteLoss:
    values = ", ".join(f"{name} is {metrics[name]}" for name in bad)
    finite = _on_all_ranks(torch.stack(own_losses).isfinite().all())
    ranks = [str(rank) for rank, is_finite in enumerate(finite) if not is_finite]
    where = f", from rank {', '.join(ranks)}" if ranks else ""
    return NonFiniteLoss(
        f"step {step}: {values}{where}.",
        'Lower learning_rate, or keep float32 weights with precision = "bf16_mixed".',
    )


def _on_all_ranks(value: torch.Tensor) -> list[bool]:
    """A flag of each rank; every rank must be here at once."""
    if not dist.is_initialized():
        return [bool(value)]
    flags = [torch.zeros_like(value, dtype=torch.uint8) for _ in range(dist.get_world_size())]
    dist.all_gather(flags, value.to(torch.uint8))
    return [bool(flag) for flag in flags]
