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
from typing import TYPE_CHECKING

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
        ours = _ours(folder / f"ours-{number}", model, data, ranks)
        theirs = _theirs(folder / f"theirs-{number}", model, data, ranks, here.cores)
        rates.append(ours[0] / theirs[0])
        starts.append(ours[1] / theirs[1])
        yield (
            f"  pair {number + 1}: {ours[0]:.1f} and {theirs[0]:.1f} tokens/s, "
            f"first step after {ours[1]:.1f} and {theirs[1]:.1f} s"
        )
    yield line(f"tokens/s against torchrun, {ranks} ranks", rates, "x", ">= 0.98")
    yield line(f"start to first step against torchrun, {ranks} ranks", starts, "x", "<= 1.15")


def _ours(folder: Path, model: Path, data: Path, ranks: int) -> tuple[float, float]:
    """Tokens a second, and seconds from the call to the first step."""
    folder.mkdir()
    settings = {"lora_rank": 8, "micro_batch_size": 2, "max_steps": STEPS, "max_seq_length": 1024}
    started = time.time()
    entry = jobs.start(folder, model, data, gpu_count=ranks, gpu_type="auto", **settings)
    client.follow(entry, lambda _: None)
    steps = [
        (datetime.fromisoformat(event["t"]).timestamp(), event["metrics"]["tokens"])
        for event in map(json.loads, entry.run.rank(0).events.read_text(encoding="utf-8").splitlines())
        if event["kind"] == "step"
    ]
    return _figures(started, steps)


def _theirs(folder: Path, model: Path, data: Path, ranks: int, cores: int) -> tuple[float, float]:
    script = Path(__file__).with_name("plain_trl.py")
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    command = [torchrun, "--nproc_per_node", str(ranks), str(script), str(model), str(data), str(folder), str(STEPS)]
    environment = os.environ | {"OMP_NUM_THREADS": str(max(1, cores // ranks))}
    started = time.time()
    subprocess.run(command, check=True, env=environment, capture_output=True)
    steps = json.loads((folder / "clock.json").read_text(encoding="utf-8"))
    shutil.rmtree(folder)
    return _figures(started, steps)


def _figures(started: float, steps: list[tuple[float, float]]) -> tuple[float, float]:
    (first_at, first_tokens), (last_at, last_tokens) = steps[_SKIPPED - 1], steps[-1]
    return (last_tokens - first_tokens) / (last_at - first_at), steps[0][0] - started
