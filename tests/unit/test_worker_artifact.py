"""The final model is read back before anyone is told that it is there."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.protocol.paths import RunDir
from kernel_launcher.spec.fields import Method
from kernel_launcher.worker.errors import ArtifactInvalid
from kernel_launcher.worker.failures import code_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Sample

pytestmark = pytest.mark.torch
NAME = "model.norm.weight"


@pytest.fixture
def saved(tmp_path: Path, sample: Sample) -> Path:
    """A copy of the tiny model, to break."""
    return shutil.copytree(sample.tiny, tmp_path / "model")


def change(folder: Path, **changes: Any) -> int:
    """Put other tensors into the file (None takes one out); returns how many numbers it held before."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    before = sum(tensor.numel() for tensor in weights.values())
    for name, tensor in changes.items():
        weights.pop(name)
        if tensor is not None:
            weights[name] = tensor
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return before


def test_a_whole_model_passes(saved: Path) -> None:
    """Tied weights are stored once, and count once."""
    import torch

    from kernel_launcher.worker.artifact import verify

    verify(saved, change(saved), torch.bfloat16)


def test_what_is_missing_or_not_a_number_is_found(saved: Path) -> None:
    """Each is refused by what is wrong."""
    import torch

    from kernel_launcher.worker.artifact import verify

    numbers = change(saved, **{NAME: torch.full((32,), torch.nan, dtype=torch.bfloat16)})
    with pytest.raises(ArtifactInvalid, match=f"{NAME} has values that are not finite"):
        verify(saved, numbers, torch.bfloat16)
    change(saved, **{NAME: torch.ones(32, dtype=torch.float32)})
    with pytest.raises(ArtifactInvalid, match=r"torch.float32, not torch.bfloat16"):
        verify(saved, numbers, torch.bfloat16)
    change(saved, **{NAME: None})
    with pytest.raises(ArtifactInvalid, match=f"{numbers - 32:,} numbers found, {numbers:,} expected"):
        verify(saved, numbers, torch.bfloat16)


def test_a_model_without_its_tokenizer_is_not_whole(saved: Path) -> None:
    """It would load nowhere else."""
    import torch

    from kernel_launcher.worker.artifact import verify

    numbers = change(saved)
    for path in saved.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ArtifactInvalid, match="no vocabulary"):
        verify(saved, numbers, torch.bfloat16)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, sample: Sample) -> None:
    """The record says what it was, and half a model is worth less than the space it takes."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from kernel_launcher.worker.artifact import save_final

    model = AutoModelForCausalLM.from_pretrained(sample.tiny)
    config, generation_config = model.config, model.generation_config

    def fill_the_disk(folder: Path) -> None:
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    model.save_pretrained = fill_the_disk
    with pytest.raises(OSError, match="No space") as raised:
        save_final(
            RunDir(tmp_path),
            model=model,
            tokenizer=AutoTokenizer.from_pretrained(sample.tiny),
            config=config,
            generation_config=generation_config,
            method=Method(),
            trust_remote_code=False,
        )
    assert "disk_full" == code_of(raised.value)
    assert [] == [path.name for path in tmp_path.iterdir() if path.name != "home"]
