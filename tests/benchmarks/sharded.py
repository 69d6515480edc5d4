"""Tokens a second of stages 0, 2 and 3 against a plain loop on the same rows, and against TRL under torchrun.

The loop computes its loss as TRL does: by full logits a step takes an eighth less here, and more memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher.facts.machine import this_machine
from kernel_launcher.samples import write
from tests.benchmarks.figures import line
from tests.benchmarks.training import rate_of_ours, rate_of_trl, threads
from tests.process.ranks import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

_RANKS, _STEPS, _MICRO_BATCH, _SKIPPED = 2, 8, 2, 1
_ROOT = Path(__file__).parents[2]


def run(folder: Path, pairs: int) -> Iterator[str]:
    """LoRA on SmolLM2, each stage and its rivals in turn."""
    here = this_machine()
    if here.slots < _RANKS or not here.is_cpu:
        yield "stages against a plain loop: not run, that loop is for two ranks on a processor"
        return
    write(folder / "sample", only=("smollm2", "data"))
    model, data = folder / "sample" / "smollm2", folder / "sample" / "sft.jsonl"
    against_loop: dict[int, list[float]] = {0: [], 2: [], 3: []}
    against_trl: list[float] = []
    for number in range(pairs):
        for stage, found in against_loop.items():
            place = folder / f"sharded-{stage}-{number}"
            ours, _ = rate_of_ours(place, model, data, _RANKS, zero_stage=stage, max_steps=_STEPS)
            loop = _rate_of_loop(place, model, stage)
            found.append(ours / loop)
            said = f"  stage {stage}: {ours:.1f} tokens/s, {loop:.1f} in the loop"
            if stage == 0:
                trl, _ = rate_of_trl(folder / f"trl-{number}", model, data, _RANKS)
                against_trl.append(ours / trl)
                said += f", {trl:.1f} of TRL"
            yield said
    for stage, found in against_loop.items():
        yield line(f"tokens/s against a plain loop, stage {stage}", found, "x", ">= 0.98")
    yield line("tokens/s against torchrun, stage 0", against_trl, "x", ">= 0.98")
    yield "stages 2 and 3 against torchrun: not run, accelerate makes DDP of FSDP on a processor"


def _rate_of_loop(place: Path, model: Path, stage: int) -> float:
    """Tokens a second of the loop, on the rows that our run has prepared."""
    rows = next(place.rglob("train.arrow"))
    cell: dict[str, Any] = {
        "base": str(model), "rows": str(rows), "stage": stage, "precision": "bf16", "lora_rank": 8,
        "steps": _STEPS, "micro_batch": _MICRO_BATCH, "learning_rate": 2e-4, "recompute": True,
        "trl_head": True,
    }  # fmt: skip
    asked, answered = place / "cells.json", place / "results.json"
    asked.write_text(json.dumps([cell]), encoding="utf-8")
    port = free_port()
    common = {"WORLD_SIZE": str(_RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    common["OMP_NUM_THREADS"] = str(threads(_RANKS))
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.oracle", str(asked), str(answered)],
            env=os.environ | common | {"RANK": str(rank)},
            cwd=_ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(_RANKS)
    ]
    if [0] * _RANKS != [process.wait() for process in processes]:
        raise RuntimeError("the plain loop failed")
    (found,) = json.loads(answered.read_text(encoding="utf-8"))
    return float(sum(found["tokens"][_SKIPPED:]) / sum(found["seconds"][_SKIPPED:]))
