"""What is reported of a step, and what ends a run."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_launcher.worker.errors import NonFiniteLoss

pytestmark = pytest.mark.torch


class Listener:
    """Stands for the reporter: keeps what it is told."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.steps: list[tuple[int, int, dict[str, float]]] = []
        self.lines: list[str] = []
        self.step = 0

    def enter(self, phase: str) -> None:
        self.phases.append(phase)

    def report_step(self, step: int, total_steps: int, metrics: dict[str, float]) -> None:
        self.steps.append((step, total_steps, metrics))

    def say(self, text: str) -> None:
        self.lines.append(text)


def run(logs: list[dict[str, float]], *, first_rank: bool = True) -> tuple[Listener, int]:
    """Feed the callback as the trainer does; returns what was reported, and the step that was reached."""
    import torch

    from kernel_launcher.worker.steps import StepReporter, TokenCount

    tokens, own_losses, listener = TokenCount(1), [], Listener()
    callback = StepReporter(tokens, own_losses, listener)  # type: ignore[arg-type]
    state = SimpleNamespace(global_step=0, max_steps=len(logs), is_world_process_zero=first_rank)
    callback.on_train_begin(None, state, None)
    for log in logs:
        if "loss" in log:
            callback.on_step_begin(None, state, None)
            tokens.begin([{"attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}] * 2)
            own_losses[:] = [torch.tensor(log["loss"])]
            state.global_step += 1
        callback.on_log(None, state, None, logs=log)
    return listener, state.global_step


def log(loss: float, grad_norm: float = 1.0) -> dict[str, Any]:
    return {"loss": loss, "grad_norm": grad_norm, "learning_rate": 0.1, "epoch": 0.5, "mean_token_accuracy": 0.2}


def test_each_step_is_reported_and_the_summary_is_not() -> None:
    """Tokens add up over micro-batches and steps, without padding; the trainer's own extras are left out."""
    listener, _ = run([log(2.0), log(1.5), {"train_runtime": 3.0, "train_loss": 1.75}])
    assert [1, 2] == [step for step, _, _ in listener.steps]
    assert [10, 20] == [metrics["tokens"] for _, _, metrics in listener.steps]
    expected = ["loss", "learning_rate", "grad_norm", "tokens_per_second", "step_seconds", "tokens", "epoch"]
    assert expected == list(listener.steps[0][2])
    assert ["first_step", "train"] == listener.phases
    assert 2 == listener.step
    assert listener.lines[1].startswith("step 2/3  loss 1.5000")


def test_other_ranks_know_their_step_and_report_none() -> None:
    """One series, not one a rank."""
    listener, _ = run([log(2.0)], first_rank=False)
    assert ([], 1) == (listener.steps, listener.step)


@pytest.mark.parametrize(
    ("expected", "bad"),
    [
        ("step 2: loss is nan, from rank 0", log(math.nan)),
        ("step 2: loss is inf, grad_norm is nan, from rank 0", log(math.inf, math.nan)),
        (r"step 2: grad_norm is inf\.", log(1.0, math.inf)),
    ],
)
def test_the_first_value_that_is_not_finite_ends_the_run(expected: str, bad: dict[str, float]) -> None:
    """Named with its step and the ranks that it came from."""
    with pytest.raises(NonFiniteLoss, match=expected):
        run([log(2.0), bad, log(1.0)])
