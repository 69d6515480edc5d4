"""Hold the default learning rate and batch against their neighbours: one job a cell, judged by held-out loss.

    veri-jupyter sample sample
    python scripts/default_rates.py sample lora | tee -a lora.jsonl

One line a cell: learning rate, rows an optimizer step, mean loss of the answers' tokens over the held-out rows before
and after. Cells that a file of earlier lines has (``--done lora.jsonl``) are not run again. The results that the
defaults stand on are in default_rates.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from kernel_launcher.protocol.states import Status

HELD_OUT_ROWS = 60
# Around the default rate of each kind; the batch is that of one, two and four ranks of two rows.
RATES = {"lora": (6e-5, 2e-4, 6e-4), "full": (6e-6, 2e-5, 6e-5)}
BATCHES = (2, 4, 8)
SETTINGS: dict[str, dict[str, Any]] = {"lora": {"lora_rank": 16}, "full": {}}


def main() -> None:
    """Run the cells that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sample", type=Path)
    parser.add_argument("kind", choices=RATES)
    parser.add_argument("--done", type=Path)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--rates", type=float, nargs="+")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    arguments = parser.parse_args()
    lines = arguments.done.read_text().splitlines() if arguments.done else []
    done = {(cell["learning_rate"], cell["batch"]) for cell in map(json.loads, lines)}
    base, heldout = arguments.sample / "smollm2", arguments.sample / "heldout.jsonl"
    before = held_out_loss(base, heldout)
    for rate, batch in product(arguments.rates or RATES[arguments.kind], arguments.batches):
        if (rate, batch) in done:
            continue
        with tempfile.TemporaryDirectory() as folder:
            final = train(arguments, Path(folder), rate, batch)
            after = held_out_loss(final, heldout)
        cell = {"learning_rate": rate, "batch": batch, "before": round(before, 4), "after": round(after, 4)}
        print(json.dumps(cell), flush=True)


def train(arguments: argparse.Namespace, folder: Path, rate: float, batch: int) -> Path:
    """The final folder of one epoch over the first rows, on one rank."""
    import veri_jupyter

    rows = folder / "rows.jsonl"
    rows.write_text("".join((arguments.sample / "sft.jsonl").read_text().splitlines(keepends=True)[: arguments.rows]))
    job = veri_jupyter.train(
        str(arguments.sample / "smollm2"), str(rows), run_dir=str(folder / "run"), gpus=1, learning_rate=rate,
        micro_batch_size=batch, gradient_checkpointing=False, sample_every=0,
        **SETTINGS[arguments.kind],
    )  # fmt: skip
    job.wait(quiet=True)
    if job.status != Status.COMPLETED:
        sys.exit(f"{job.id}: {job.error}")
    return job.final_dir


def held_out_loss(model: Path, heldout: Path) -> float:
    """Mean cross-entropy of the answers' tokens of the first held-out rows, in nats."""
    import pyarrow as pa
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from kernel_launcher.data.rows.columns import Columns
    from kernel_launcher.data.rows.source import read_rows
    from kernel_launcher.data.training.prepare import prepare
    from kernel_launcher.spec.fields import Method
    from kernel_launcher.worker.codec import TransformersCodec

    with tempfile.TemporaryDirectory() as folder:
        arrow = Path(folder) / "rows.arrow"
        codec = TransformersCodec(AutoTokenizer.from_pretrained(model))
        prepare(read_rows(heldout), Columns(), Method(max_seq_length=1024), codec, write=arrow)
        rows = pa.ipc.open_stream(arrow).read_all().to_pylist()[:HELD_OUT_ROWS]
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for row in rows:
            ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
            scored = int((labels[:, 1:] != -100).sum())
            total += float(network(input_ids=ids, labels=labels).loss) * scored
            count += scored
    return total / count


if __name__ == "__main__":
    main()
