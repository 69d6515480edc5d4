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


def change(folder: Path, **changes: Any) -> dict[str, tuple[int, ...]]:
    """Put other tensors into the file (None takes one out); returns the shapes that it held before."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    before = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name, tensor in changes.items():
        weights.pop(name, None)
        if tensor is not None:
            weights[name] = tensor
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return before


def test_a_whole_model_passes(saved: Path) -> None:
    """Tied weights are stored once."""
    import torch
    from transformers import AutoModelForCausalLM

    from kernel_launcher.worker.artifact import shapes_on_disk, verify

    shapes = shapes_on_disk(AutoModelForCausalLM.from_pretrained(saved))
    assert change(saved) == shapes
    verify(saved, shapes, torch.bfloat16)


def test_experts_that_are_joined_in_memory_are_apart_on_disk(tmp_path: Path) -> None:
    """The table of what must be there has the names that the files have."""
    from safetensors.torch import load_file
    from transformers import MixtralConfig, MixtralForCausalLM

    from kernel_launcher.worker.artifact import shapes_on_disk

    model = MixtralForCausalLM(
        MixtralConfig(hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=10, num_local_experts=3)
    )  # fmt: skip
    expected = shapes_on_disk(model)
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert expected == {name: tuple(tensor.shape) for name, tensor in stored.items()}


def test_what_is_missing_or_not_a_number_is_found(saved: Path) -> None:
    """Each is refused by what is wrong."""
    import torch

    from kernel_launcher.worker.artifact import verify

    shapes = change(saved, **{NAME: torch.full((32,), torch.nan, dtype=torch.bfloat16)})
    with pytest.raises(ArtifactInvalid, match=f"{NAME} has values that are not finite"):
        verify(saved, shapes, torch.bfloat16)
    change(saved, **{NAME: torch.ones(32, dtype=torch.float32)})
    with pytest.raises(ArtifactInvalid, match=r"torch.float32, not torch.bfloat16"):
        verify(saved, shapes, torch.bfloat16)
    change(saved, **{NAME: torch.ones(16, dtype=torch.bfloat16)})
    with pytest.raises(ArtifactInvalid, match=rf"{NAME} is \(16,\), not \(32,\)"):
        verify(saved, shapes, torch.bfloat16)
    change(saved, **{NAME: None})
    with pytest.raises(ArtifactInvalid, match=f"{NAME} is missing"):
        verify(saved, shapes, torch.bfloat16)
    change(saved, **{NAME: torch.ones(32, dtype=torch.bfloat16), "lm_head.weight": torch.ones(4, 4)})
    with pytest.raises(ArtifactInvalid, match=r"lm_head\.weight does not belong there"):
        verify(saved, shapes, torch.bfloat16)


def test_a_model_without_its_tokenizer_is_not_whole(saved: Path) -> None:
    """It would load nowhere else."""
    import torch

    from kernel_launcher.worker.artifact import verify

    shapes = change(saved)
    for path in saved.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ArtifactInvalid, match="no vocabulary"):
        verify(saved, shapes, torch.bfloat16)


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
