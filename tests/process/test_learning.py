"""A pretrained model learns with the defaults, and what is left of it answers in a fresh process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kernel_launcher import samples
from kernel_launcher.launcher import answers, client
from kernel_launcher.protocol.states import Status
from tests.process import jobs

if TYPE_CHECKING:
    from pathlib import Path

HELD_OUT_ROWS = 40


def answer_loss(model: Path, rows: Path, folder: Path) -> float:
    """Mean cross-entropy of the answers' tokens, in nats, over the first held-out rows."""
    import pyarrow as pa
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from kernel_launcher.data.columns import Columns
    from kernel_launcher.data.prepare import prepare
    from kernel_launcher.data.source import read_rows
    from kernel_launcher.worker.codec import TransformersCodec

    codec = TransformersCodec(AutoTokenizer.from_pretrained(model))
    encoded = folder / "heldout.arrow"
    prepare(read_rows(rows), Columns(), "sft_text", codec, max_length=1024, loss_on="answers", write=encoded)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for row in pa.ipc.open_stream(encoded).read_all().to_pylist()[:HELD_OUT_ROWS]:
            ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
            scored = int((labels[:, 1:] != -100).sum())
            total += float(network(input_ids=ids, labels=labels).loss) * scored
            count += scored
    return total / count


@pytest.mark.matrix
@pytest.mark.timeout(900)
def test_held_out_loss_falls_with_the_defaults(tmp_path: Path) -> None:
    """Thirty steps of LoRA on SmolLM2 with every other setting left open: answers it has not seen get likelier."""
    paths = samples.write(tmp_path / "sample", only=("smollm2", "data"))
    entry = jobs.start(tmp_path, paths["smollm2"], paths["sft"], max_seq_length=None, lora_rank=8, max_steps=30)
    view = client.follow(entry, lambda _: None)
    assert Status.COMPLETED is view.status, view.failure
    before = answer_loss(paths["smollm2"], paths["heldout"], tmp_path)
    after = answer_loss(entry.run.final, paths["heldout"], tmp_path)
    print(f"held-out loss {before:.3f} -> {after:.3f}")
    assert after < 0.95 * before

    question = "What does the function `json.dumps` do?"
    trained, base = (answers.generate(entry, [question], base=base)[0] for base in (False, True))
    assert trained
    assert base
    assert trained != base
