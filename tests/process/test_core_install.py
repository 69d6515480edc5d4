"""The core, installed by itself into an environment without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Sample

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "plotly")


def output(command: list[str | Path], folder: Path, *, code: int = 0) -> str:
    """What a command prints; it must end with ``code``."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert code == done.returncode, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a fresh environment with the core alone."""
    folder = tmp_path_factory.mktemp("core") / "env"
    output([sys.executable, "-m", "venv", folder], ROOT)
    # A copy: a build in the tree would leave its folder there.
    source = folder / "source"
    parts = ("pyproject.toml", "README.md", "LICENSE", "kernel_launcher", "veri_jupyter")
    source.mkdir()
    output(["cp", "-r", *(ROOT / name for name in parts), source], ROOT)
    pip: list[str | Path] = [folder / "bin" / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
    output([*pip, source], ROOT)
    return folder / "bin"


@pytest.mark.matrix
def test_the_core_plans_without_torch(core: Path, sample: Sample, tmp_path: Path) -> None:
    """It installs without torch, plans, and says what training needs."""
    found = f"import importlib.util as u; print([n for n in {HEAVY!r} if u.find_spec(n)])"
    assert "[]" == output([core / "python", "-c", found], tmp_path).strip()

    job = tmp_path / "job.toml"
    job.write_text(f'[model]\nbase = "{sample.tiny}"\n[dataset]\nid = "{sample.sft}"\n', encoding="utf-8")
    plan = json.loads(output([core / "veri-jupyter", "plan", job, "--json"], tmp_path))
    assert plan["line"].startswith("plan: dp=")
    refused = output([core / "veri-jupyter", "run", job], tmp_path, code=1)
    assert "lacks torch" in refused
    assert "veri-jupyter[train]" in refused
    assert not (tmp_path / "runs").exists()


@pytest.mark.matrix
def test_the_core_shows_data_without_torch(core: Path, sample: Sample, tmp_path: Path) -> None:
    """Tokens, labels and findings come from the core alone."""
    words = ["data", sample.sft, "--model", sample.tiny, "-n", "1", "--json"]
    view = json.loads(output([core / "veri-jupyter", *words], tmp_path))
    assert (600, []) == (view["rows_seen"], view["findings"])
    assert view["rows"][0]["parts"][0]["counts"]["trained"] > 0


@pytest.mark.matrix
def test_a_job_runs_in_another_environment(core: Path, sample: Sample, tmp_path: Path) -> None:
    """``python`` under [resources] trains in an environment that has torch, started from one that has not."""
    job = tmp_path / "job.toml"
    job.write_text(
        f'[model]\nbase = "{sample.tiny}"\n[dataset]\nid = "{sample.sft}"\n'
        f"[method]\nlora_rank = 4\nmax_steps = 2\nmax_seq_length = 64\n"
        f'[resources]\ngpu_type = "CPU"\ngpu_count = 1\npython = "{sys.executable}"\n',
        encoding="utf-8",
    )
    output([core / "veri-jupyter", "run", job], tmp_path)
    ended = json.loads(output([core / "veri-jupyter", "show", "last", "--json"], tmp_path))
    assert ("completed", 2) == (ended["status"], ended["current_step"])

    answer = output([core / "veri-jupyter", "run", job, "--set", f"python={core / 'python'}"], tmp_path, code=1)
    assert "lacks torch" in answer
