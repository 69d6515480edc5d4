"""The measurements in tests/data/tracker.jsonl, as what the planner is asked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernel_launcher.planner.levers import LORA_TARGETS
from kernel_launcher.planner.peak import Peak, peak
from kernel_launcher.planner.shape import ModelShape, from_config
from kernel_launcher.planner.workload import Lora, Workload

DATA = Path(__file__).parent.parent / "data"
GIB = 2**30


@dataclass(frozen=True)
class Measured:
    """One row: a run, what was measured of it in bytes, and what is predicted."""

    row: dict[str, Any]
    forward: float | None
    forward_backward: float
    step: float

    @property
    def predicted(self) -> Peak:
        found = peak(workload(self.row), shape(self.row["model"], self.row["layers"]))
        assert isinstance(found, Peak)
        return found

    def error(self, part: str) -> float:
        """Predicted over measured, less one."""
        by_phase = self.predicted.by_phase
        step = by_phase.pop("optimizer step")
        forward = max(size for phase, size in by_phase.items() if "forward" in phase)
        predicted = {"forward": forward, "forward_backward": max(by_phase.values()), "step": step}[part]
        return predicted / getattr(self, part) - 1


@cache
def measurements() -> tuple[Measured, ...]:
    rows = [json.loads(line) for line in (DATA / "tracker.jsonl").read_text().splitlines()]
    return tuple(
        Measured(row, *(row["peak_gib"].get(part, 0) * GIB for part in ("forward", "forward_backward", "step")))
        for row in rows
    )


@cache
def shape(model: str, layers: int | None = None) -> ModelShape:
    """A model, cut to so many layers."""
    config = json.loads((DATA / "tracker_models.json").read_text())[model]
    found = from_config(config | ({"num_hidden_layers": layers} if layers else {}))
    assert isinstance(found, ModelShape)
    return found


def workload(row: dict[str, Any]) -> Workload:
    """A row's run as torch's tracker sees it, with the kernels of a CPU."""
    lora = row.get("lora")
    accumulation = row.get("accumulation", "none")
    return Workload(
        zero_stage=row["zero_stage"],
        world_size=row["world_size"],
        micro_batch_size=row["micro_batch_size"],
        length=row["seq_length"],
        precision=row["precision"],
        recompute=row["gradient_checkpointing"],
        method="dpo" if row.get("method") == "dpo" else "sft_text",
        lora=Lora(
            rank=lora["rank"], targets=tuple(lora.get("targets", LORA_TARGETS)), dropout=lora.get("dropout", 0.0)
        )
        if lora
        else None,
        optimizer=row["optimizer"],
        loss={"hf": "logits", "fused": "fused"}[row["loss"]],
        mask="always" if row["mask"] else "never",
        accumulation_steps=1 if accumulation == "none" else 2,
        sync_each_batch=accumulation == "reduced",
        units=row.get("units", "root"),
        device="cpu",
        tracked=True,
    )
