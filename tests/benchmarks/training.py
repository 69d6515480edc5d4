"""Against the same TRL script under plain torchrun: tokens a second, and seconds from the start to the first step."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher.facts.machine import this_machine
from kernel_launcher.launcher import client
from kernel_launcher.samples import write
from tests.benchmarks.figures import line
from tests.process import jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 12
# The first step starts thread pools and allocators; it counts for the start, not for the rate.
_SKIPPED = 1


def run(folder: Path, pairs: int) -> Iterator[str]:
    """Ours and theirs in turn, on SmolLM2 with LoRA."""
    write(folder / "sample", only=("smollm2", "data"))
    model, data = folder / "sample" / "smollm2", folder / "sample" / "sft.jsonl"
    here = this_machine()
    ranks = min(2, here.slots)
    rates, starts = [], []
    for number in range(pairs):
        ours = rate_of_ours(folder / f"ours-{number}", model, data, ranks)
        theirs = rate_of_trl(folder / f"theirs-{number}", model, data, ranks)
        rates.append(ours[0] / theirs[0])
        starts.append(ours[1] / theirs[1])
        yield (
            f"  pair {number + 1}: {ours[0]:.1f} and {theirs[0]:.1f} tokens/s, "
            f"first step after {ours[1]:.1f} and {theirs[1]:.1f} s"
        )
    yield line(f"tokens/s against torchrun, {ranks} ranks", rates, "x", ">= 0.98")
    yield line(f"start to first step against torchrun, {ranks} ranks", starts, "x", "<= 1.15")


def rate_of_ours(folder: Path, model: Path, data: Path, ranks: int, **more: Any) -> tuple[float, float]:
    """Tokens a second, and seconds from the call to the first step; the run is in ``folder / "runs"``."""
    folder.mkdir()
    settings = {"lora_rank": 8, "micro_batch_size": 2, "max_steps": STEPS, "max_seq_length": 1024, "sample_every": 0}
    started = time.time()
    entry = jobs.start(folder, model, data, gpu_count=ranks, gpu_type="auto", **settings | more)
    client.follow(entry, lambda _: None)
    steps = [
        (datetime.fromisoformat(event["t"]).timestamp(), event["metrics"]["tokens"])
        for event in map(json.loads, entry.run.rank(0).events.read_text(encoding="utf-8").splitlines())
        if event["kind"] == "step"
    ]
    return _figures(started, steps)


def rate_of_trl(folder: Path, model: Path, data: Path, ranks: int) -> tuple[float, float]:
    """The same of the plain script under torchrun."""
    script = Path(__file__).with_name("plain_trl.py")
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    command = [torchrun, "--nproc_per_node", str(ranks), str(script), str(model), str(data), str(folder), str(STEPS)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads(ranks))}
    started = time.time()
    subprocess.run(command, check=True, env=environment, capture_output=True)
    steps = json.loads((folder / "clock.json").read_text(encoding="utf-8"))
    shutil.rmtree(folder)
    return _figures(started, steps)


def threads(ranks: int) -> int:
    """What each rank gets of the processor."""
    return max(1, this_machine().cores // ranks)


def _figures(started: float, steps: list[tuple[float, float]]) -> tuple[float, float]:
    (first_at, first_tokens), (last_at, last_tokens) = steps[_SKIPPED - 1], steps[-1]
    return (last_tokens - first_tokens) / (last_at - first_at), steps[0][0] - started
