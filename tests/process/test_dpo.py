"""Preference training from the command line to the files."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kernel_launcher.protocol.paths import RunDir
from tests.process.ranks import events

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Sample

pytestmark = pytest.mark.torch

JOB = """
[model]
base = "{model}"
[dataset]
id = "{data}"
[method]
type = "dpo"
zero_stage = 3
max_steps = 2
max_length = 128
{more}
[resources]
gpu_type = "CPU"
gpu_count = 2
"""


def run(folder: Path, model: Path, data: Path, more: str = "") -> RunDir:
    """A job, followed to its end."""
    job = folder / "job.toml"
    job.write_text(JOB.format(model=model, data=data, more=more))
    command = [sys.executable, "-m", "kernel_launcher", "run", str(job), "--run-dir", str(folder / "run"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "completed" == json.loads(done.stdout)["status"]
    return RunDir(folder / "run")


def check(run: RunDir) -> None:
    """Both ranks held their part, the first loss is ln 2, and the model was read back."""
    for rank in (0, 1):
        assert ["Shard(0) of 2"] == list(events(run, rank, "held")[0]["placements"])
    first, second = (event["metrics"] for event in events(run, 0, "step"))
    assert math.log(2) == pytest.approx(first["loss"], abs=1e-5)
    assert first["loss"] != second["loss"]
    assert {"rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"} <= second.keys()
    assert [True] == [event["verified"] for event in events(run, 0, "artifact")]
    assert list(run.final.glob("*.safetensors"))


def test_a_sharded_job_from_a_file_to_a_model(tmp_path: Path, sample: Sample) -> None:
    """A full fine-tune with a sharded reference."""
    check(run(tmp_path, sample.tiny, sample.dpo))


@pytest.mark.matrix
def test_a_real_model_with_an_adapter(tmp_path: Path, sample: Sample) -> None:
    """SmolLM2, whose reference is the model without its adapter."""
    command = [sys.executable, "-P", "-m", "kernel_launcher.samples", str(tmp_path), "--only", "smollm2"]
    subprocess.run(command, check=True)
    check(run(tmp_path, tmp_path / "smollm2", sample.dpo, "lora_rank = 8"))
