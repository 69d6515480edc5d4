"""Jobs for pictures: they exist in files alone, and look like real ones."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from tests.kernel.fakes import FakeJob

if TYPE_CHECKING:
    from pathlib import Path

GB = 10**9
TOTAL = 114


def job(folder: Path, name: str, steps: int = 57, *, method: str = "sft_text", ranks: int = 4) -> FakeJob:
    """A job in the middle of its run."""
    made = FakeJob(folder / name, name)
    made.plan(peak=17 * GB, limit=22 * GB, method=method)
    made.status("configuring")
    made.status("running")
    advance(made, 1, steps, dpo=method == "dpo")
    for rank in range(ranks if steps else 0):
        now = int((15.8 + rank / 10) * GB)
        made.report("heartbeat", rank, step=steps, phase="train", memory_bytes=now, peak_memory_bytes=now + GB // 2)
    return made


def answered(made: FakeJob, step: int, text: str) -> None:
    """A round of answers, as a rank reports it."""
    said = {"prompt": "What colour is the sky?", "text": text, "tokens": 4, "finished": True, "held_out": True}
    made.report("samples", step=step, samples=[said], seconds=0.4)


def advance(made: FakeJob, first: int, last: int, *, dpo: bool = False, total: int = TOTAL) -> None:
    """Its next steps, with an evaluation every ten."""
    noise = random.Random(first)
    for step in range(first, last + 1):
        loss = 2.4 * math.exp(-step / 40) + 1 + noise.gauss(0, 0.08)
        more = {"rewards/margins": 0.02 * step + noise.gauss(0, 0.1), "rewards/accuracies": min(1, 0.5 + step / 150)}
        made.step(
            step,
            total,
            loss=loss / 4 if dpo else loss,
            learning_rate=2e-4 * (1 - step / total),
            grad_norm=0.8 + noise.random() / 5,
            tokens_per_second=12_400 + noise.gauss(0, 200),
            step_seconds=2.0,
            epoch=3 * step / total,
            **(more if dpo else {}),
        )
        if step % 10 == 0:
            made.report("eval", step=step, metrics={"eval_loss": loss + 0.05})
