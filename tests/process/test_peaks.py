"""Measured beside planned: what each of two ranks holds at most, in real training on the processor."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.planner import Plan
from kernel_launcher.planner.peak import Peak
from tests.process import ranks
from tests.process.peaks import peak_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Sample

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]
LENGTH = 32
# Large enough that states and layers outweigh the head's tiles of logits.
CONFIG = {
    "model_type": "qwen3", "hidden_size": 320, "intermediate_size": 960, "num_hidden_layers": 6, "head_dim": 40,
    "num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": True, "use_cache": False,
}  # fmt: skip
STAGES = [{"zero_stage": stage, **lora} for stage in (0, 2, 3) for lora in ({}, {"lora_rank": 16})]
MORE = [
    {"zero_stage": stage, **more}
    for stage in (0, 2, 3)
    for more in (
        {"precision": "fp32"},
        {"precision": "bf16_mixed"},
        {"precision": "bf16_mixed", "lora_rank": 16},
        {"gradient_checkpointing": False},
        {"micro_batch_size": 4},
        {"gradient_accumulation_steps": 2},
    )
]


@pytest.fixture(scope="module")
def model(sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights around the sample's tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("model") / "wide"
    shutil.copytree(sample.tiny, folder)
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    settings = AutoConfig.for_model(**CONFIG, vocab_size=vocabulary)
    AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts longer than rows may be, so that each is cut to just that length, and some a token shorter."""
    path = tmp_path_factory.mktemp("rows") / "long.jsonl"
    texts = [f"row {number}: " + "one two three " * (40 if number % 2 else 9) for number in range(64)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


@pytest.mark.parametrize(
    "plans",
    [STAGES, pytest.param(MORE, marks=[pytest.mark.matrix, pytest.mark.timeout(1800)])],
    ids=["stages", "more"],
)
def test_each_rank_holds_what_was_planned(
    plans: list[dict[str, Any]], model: Path, rows: Path, tmp_path: Path
) -> None:
    """The most that torch has allocated in steps 2 and 3 is the planned peak, to one part in twenty."""
    runs = []
    for number, plan in enumerate(plans):
        folder = tmp_path / str(number)
        folder.mkdir()
        settings = {"gpu_count": 2, "max_steps": 3, "max_seq_length": LENGTH, "sample_every": 0} | plan
        runs.append(ranks.make_run(folder, model, rows, **settings))
    ranks.in_turn(runs, module="tests.process.peaks", seconds=1500)
    for plan, run in zip(plans, runs, strict=True):
        planned = Plan.from_json(json.loads(run.plan.read_text())).outlook.peak()
        assert isinstance(planned, Peak)
        for rank in (0, 1):
            measured = peak_of(run.rank(rank).root)
            print(plan, rank, measured, planned.worst.name, round(measured / planned.tensor_bytes, 4))
            assert planned.tensor_bytes == pytest.approx(measured, rel=0.05), (plan, rank, planned.worst)
