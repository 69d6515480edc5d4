"""A pretrained model learns with the defaults, and what is left of it answers in a fresh process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kernel_launcher import samples
from kernel_launcher.launcher import answers, client
from kernel_launcher.protocol.states import Status
from scripts.default_rates import held_out_loss
from tests.process import jobs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.matrix
@pytest.mark.timeout(900)
def test_held_out_loss_falls_with_the_defaults(tmp_path: Path) -> None:
    """Thirty steps of LoRA on SmolLM2 with every other setting left open: answers it has not seen get likelier."""
    paths = samples.write(tmp_path / "sample", only=("smollm2", "data"))
    entry = jobs.start(tmp_path, paths["smollm2"], paths["sft"], max_seq_length=None, lora_rank=8, max_steps=30)
    view = client.follow(entry, lambda _: None)
    assert Status.COMPLETED is view.status, view.failure
    before = held_out_loss(paths["smollm2"], paths["heldout"])
    after = held_out_loss(entry.run.final, paths["heldout"])
    print(f"held-out loss {before:.3f} -> {after:.3f}")
    assert after < 0.95 * before

    question = "What does the function `json.dumps` do?"
    trained, base = (answers.generate(entry, [question], base=base)[0] for base in (False, True))
    assert trained
    assert base
    assert trained != base
