"""A run that does not keep its plan, or whose model is not whole, ends with that: nothing quietly falls back."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.process.ranks import logs, make_run, record, started

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_launcher.protocol.failure import RankRecord
    from kernel_launcher.protocol.paths import RunDir
    from tests.conftest import Sample

pytestmark = pytest.mark.torch

_CODE = """
from transformers import Qwen3Config, Qwen3ForCausalLM

class OwnConfig(Qwen3Config):
    model_type = "own"

class OwnModel(Qwen3ForCausalLM):
    config_class = OwnConfig
"""
# A saver that loses a weight.
LOSES = """
    def save_pretrained(self, folder, **kwargs):
        super().save_pretrained(folder, **kwargs)
        from safetensors.torch import load_file, save_file
        path = folder / "model.safetensors"
        weights = load_file(path)
        del weights["model.layers.1.mlp.up_proj.weight"]
        save_file(weights, path)
"""
# What accelerate does with fsdp=True on a processor: nothing at all.
SHARDS_NOTHING = """
import kernel_launcher.worker.sharding
kernel_launcher.worker.sharding.fully_shard = lambda module, **_: module
"""
# One rank that makes another model of the same files.
DIFFERS = """
import kernel_launcher.worker.models
from kernel_launcher.worker.loading import local
spread = kernel_launcher.worker.models.spread
def spread_and_spoil(model, source, device):
    spread(model, source, device)
    if source is None:
        local(next(model.parameters()).detach()).view(-1)[0] += 1
kernel_launcher.worker.models.spread = spread_and_spoil
"""


def failed(folder: Path, sample: Sample, code: str, **settings: object) -> tuple[RunDir, RankRecord | None]:
    """A run of a model that ships such code, and what the rank that failed says."""
    model = shutil.copytree(sample.tiny, folder / "model")
    (model / "own.py").write_text(_CODE + code)
    config = json.loads((model / "config.json").read_text())
    names = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    config |= {"model_type": "own", "architectures": ["OwnModel"], "auto_map": names}
    (model / "config.json").write_text(json.dumps(config))
    run = make_run(folder, model, sample.sft, gpu_count=2, max_steps=1, trust_remote_code=True, **settings)
    with started(run, {"HF_HOME": str(folder / "hf")}) as ranks:
        ranks.wait_until(lambda: any(record(run, rank) for rank in (0, 1)))
    return run, record(run, 0) or record(run, 1)


def test_a_model_that_is_not_whole_is_no_result(tmp_path: Path, sample: Sample) -> None:
    """Every step was done; the folder does not appear."""
    run, failure = failed(tmp_path, sample, LOSES, zero_stage=3)
    assert failure is not None, logs(run)
    assert ("artifact_invalid", "final", 1) == (failure.code, failure.phase, failure.step)
    assert "model.layers.1.mlp.up_proj.weight is missing" in failure.text
    assert not run.final.exists()


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("code", "stage", "expected"),
    [
        (SHARDS_NOTHING, 3, "zero_stage = 3 on 2 ranks means FSDPModule"),
        (DIFFERS, 0, "does not hold the weights"),
        (DIFFERS, 2, "does not hold the weights"),
    ],
)
def test_a_plan_that_is_not_kept_ends_the_run(
    tmp_path: Path, sample: Sample, code: str, stage: int, expected: str
) -> None:
    """Before the first step."""
    run, failure = failed(tmp_path, sample, code, zero_stage=stage)
    assert failure is not None, logs(run)
    assert ("plan_not_kept", 0) == (failure.code, failure.step)
    assert expected in failure.text
    assert not run.final.exists()
