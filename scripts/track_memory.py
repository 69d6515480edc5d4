"""Measure what a training step holds at its worst moments, without a GPU: torch's own tracker over fake tensors.

    python scripts/track_memory.py '{"model": "Qwen3-4B", "layers": 4, "zero_stage": 3, "world_size": 4}'
    python scripts/track_memory.py --again --only Llama

Each run prints one row as tests/data/tracker.jsonl has them; ``--again`` repeats those rows and prints what differs.
What is measured, and how, is in kernel_launcher/tracker.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kernel_launcher.tracker.model import cut
from kernel_launcher.tracker.run import Run
from kernel_launcher.tracker.step import measure

DATA = Path(__file__).parent.parent / "tests" / "data"
GIB = 2**30
# What a row says when it leaves a key out.
DEFAULTS: dict[str, Any] = {"layers": 4, **asdict(Run())}


def peaks_of(row: dict[str, Any]) -> dict[str, float]:
    """Peaks by part of the step, in GiB: forward, forward and backward, optimizer."""
    config = json.loads((DATA / "tracker_models.json").read_text())[row["model"]]
    run = Run(**{field.name: row[field.name] for field in fields(Run) if field.name in row})
    found = measure(cut(config, row.get("layers", DEFAULTS["layers"])), run).peaks
    parts = {"forward": 0, "forward_backward": 0, "step": 0}
    for stretch, size in found.items():
        part = "step" if stretch.phase == "optimizer step" else "forward_backward"
        parts[part] = max(parts[part], size)
        if stretch.phase.endswith("forward"):
            parts["forward"] = max(parts["forward"], size)
    return {part: round(size / GIB, 3) for part, size in parts.items()}


def source() -> str:
    """What a row says about where it is from."""
    packages = ("torch", "transformers", "trl", "peft")
    return "track_memory.py: " + ", ".join(f"{name} {version(name)}" for name in packages)


def main() -> int:
    """Measure and print; the exit code says whether repeated rows came out the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="runs as JSON objects; keys left out: " + json.dumps(DEFAULTS))
    parser.add_argument("--again", action="store_true", help="repeat the rows of tests/data/tracker.jsonl")
    parser.add_argument("--only", default="", help="with --again: only rows that contain this text")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if not options.again:
        for text in options.rows:
            row = json.loads(text)
            print(json.dumps(DEFAULTS | row | {"peak_gib": peaks_of(row), "source": source()}), flush=True)
        return 0
    different = 0
    for line in (DATA / "tracker.jsonl").read_text().splitlines():
        if options.only in line:
            row = json.loads(line)
            peaks = peaks_of(row)
            same = all(peaks[part] == known for part, known in row["peak_gib"].items())
            different += not same
            print("same" if same else f"DIFFERS: {peaks}", line[:160], flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
