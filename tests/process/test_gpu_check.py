"""The check for machines with GPUs, as far as a processor can run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
# What a machine may lack that has no more than torch and transformers.
ABSENT = ("accelerate", "datasets", "peft", "pyarrow", "pydantic", "trl", "liger_kernel")


def check(out: Path, *options: str, path: str = "") -> dict[str, Any]:
    environment = os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-P",
        str(ROOT / "scripts" / "gpu_check"),
        "--device",
        "cpu",
        "--out",
        str(out),
        *options,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert (out / "gpu_check.md").read_text() in done.stdout
    found: dict[str, Any] = json.loads((out / "gpu_check.json").read_text())
    return found


def beside_plan(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Peak by plan, of the rows where they are more than 2 % apart; where ranks meet, 5 %.

    There gloo's threads let go of what has travelled, now and then a moment late: 1.026 in one run of about forty.
    """
    found = {}
    for row in rows:
        ratio = row["peak_bytes"] / row["planned_bytes"]
        if ratio != pytest.approx(1, rel=0.05 if row["group"] == "together" else 0.02):
            found[f"{row['group']}: {row['name']}"] = ratio
    return found


def test_rank_0_of_eight_holds_what_was_planned(tmp_path: Path) -> None:
    """Without the others, and without TRL, PEFT, pydantic and more: what needs them says so, all else is measured."""
    absent = tmp_path / "absent"
    absent.mkdir()
    (absent / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({ABSENT!r}))\n")
    found = check(tmp_path / "out", "--groups", "eight", path=str(absent))
    ran = [row for row in found["rows"] if row["status"] == "ran"]
    assert ["logits"] * 6 == [row["loss"] for row in ran]
    assert {} == beside_plan(ran)
    assert {
        "stage 3, bf16, LoRA": "not run: peft is not installed",
        "stage 3, bf16, cpu_offload": "not run: no GPU",
    } == {row["name"]: row["status"] for row in found["rows"] if row not in ran}


@pytest.mark.matrix
def test_every_row_runs(tmp_path: Path) -> None:
    """One rank and two, too: the loss falls, and the peak is the planned one."""
    found = check(tmp_path / "out")
    assert [] == [row for row in found["rows"] if row["status"].startswith("failed")]
    ran = [row for row in found["rows"] if row["status"] == "ran"]
    assert {"alone", "eight", "together"} == {row["group"] for row in ran}
    assert {} == beside_plan(ran)


def test_a_machine_without_a_gpu_is_told(tmp_path: Path) -> None:
    """And nothing is measured in its place."""
    command = [sys.executable, str(ROOT / "scripts" / "gpu_check"), "--device", "cuda", "--out", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert 1 == done.returncode
    assert "nothing can be checked on a GPU" in done.stdout
