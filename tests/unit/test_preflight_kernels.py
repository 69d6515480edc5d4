"""Kernels that are not torch's own: refused with the reason and the versions found, or handed to the trainer."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.preflight import kernels
from kernel_launcher.spec import read_spec

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_launcher.errors import Fault

FOUND = {"transformers": "5.24.0", "trl": "1.16.0", "datasets": "5.2.0", "liger-kernel": None, "unsloth": None}


def faults(
    monkeypatch: pytest.MonkeyPatch, *, on_cpu: bool = False, to_run: bool = True, **asked: Any
) -> list[Fault]:
    found = FOUND | {name.replace("_", "-"): asked.pop(name) for name in ("liger_kernel", "unsloth") if name in asked}
    monkeypatch.setattr(kernels, "versions", lambda _: found)
    spec = read_spec({"base_model": "x/y", "gpu_count": 1, **asked})
    return list(kernels.kernel_faults(spec, on_cpu=on_cpu, to_run=to_run))


def test_nothing_is_asked_of_a_plain_job(monkeypatch: pytest.MonkeyPatch):
    assert [] == faults(monkeypatch)


def test_liger_needs_a_gpu(monkeypatch: pytest.MonkeyPatch):
    """On the processor the plan is refused, too: it could never run."""
    (fault,) = faults(monkeypatch, use_liger=True, on_cpu=True, to_run=False, liger_kernel="0.8.5")
    assert "method.use_liger" == fault.key
    assert "Triton" in fault.reason


def test_liger_needs_its_package(monkeypatch: pytest.MonkeyPatch):
    """On a GPU a run says what to install; a plan for it is made without."""
    (fault,) = faults(monkeypatch, use_liger=True)
    assert ("method.use_liger", "dependency_error") == (fault.key, fault.code)
    assert "veri-jupyter[liger]" in fault.fix
    assert [] == faults(monkeypatch, use_liger=True, to_run=False)
    assert [] == faults(monkeypatch, use_liger=True, liger_kernel="0.8.5")


@pytest.mark.parametrize("unsloth", [None, "2026.10.9"])
@pytest.mark.parametrize("to_run", [True, False])
def test_unsloth_is_refused_with_the_versions_found(
    monkeypatch: pytest.MonkeyPatch, unsloth: str | None, to_run: bool
):
    """Whether it is installed or not: its releases ask for older libraries than ours."""
    (fault,) = faults(monkeypatch, use_unsloth=True, unsloth=unsloth, to_run=to_run)
    assert "method.use_unsloth" == fault.key
    for said in (f"unsloth {unsloth or 'missing'}", "transformers 5.24.0", "trl 1.16.0", "trl<=1.15.0"):
        assert said in fault.reason


@pytest.mark.parametrize(("ranks", "expected"), [(1, "None"), (2, "1")])
def test_unsloth_finds_its_switch_for_several_ranks(tmp_path: Path, ranks: int, expected: str):
    """Whatever code of a rank imports it: the variable is there before, and a value of the user's own stays."""
    (tmp_path / "unsloth.py").write_text("import os\nSWITCH = os.environ.get('UNSLOTH_USE_NEW_MODEL')\n")
    rank = (
        "from kernel_launcher.worker.assignment import Rank\n"
        f"Rank(rank=0, local_rank=0, world_size={ranks}, attempt=0).prepare_environment()\n"
        "import unsloth\nprint(unsloth.SWITCH)\n"
    )
    for set_before, said in ((None, expected), ("0", "0")):
        environment = {"PYTHONPATH": str(tmp_path)} | ({"UNSLOTH_USE_NEW_MODEL": set_before} if set_before else {})
        done = subprocess.run(
            [sys.executable, "-c", rank], env=environment, capture_output=True, text=True, check=True
        )
        assert said == done.stdout.strip()
