"""What tests share: a state directory of their own, and one sample for all of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from kernel_launcher.facts import machine

if TYPE_CHECKING:
    from pathlib import Path

# How long an example takes says something of the machine, not of the code.
settings.register_profile("veri", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("veri")


@dataclass(frozen=True)
class Sample:
    """The sample on disk; read-only by agreement."""

    root: Path

    @property
    def tiny(self) -> Path:
        return self.root / "tiny"

    @property
    def sft(self) -> Path:
        return self.root / "sft.jsonl"

    @property
    def dpo(self) -> Path:
        return self.root / "dpo.jsonl"

    @property
    def heldout(self) -> Path:
        return self.root / "heldout.jsonl"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of jobs of each test is its own."""
    monkeypatch.setenv("VERI_HOME", str(tmp_path / "home"))


@pytest.fixture(autouse=True)
def _fresh_machine() -> None:
    """What was seen of the machine in one test is forgotten in the next."""
    machine.driver_gpus.cache_clear()


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """The tiny model and the data, written once."""
    root = tmp_path_factory.mktemp("sample")
    command = [sys.executable, "-P", "-m", "kernel_launcher.samples", str(root), "--only", "tiny,data"]
    subprocess.run(command, check=True)
    return Sample(root)
