"""The final model: written beside its place, read back, and only then put there."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import VeriError
from kernel_launcher.worker.weights import BrokenFile, stored_tensors, weight_files

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from kernel_launcher.protocol.paths import RunDir
    from kernel_launcher.spec.fields import Method

# float32 weights of bf16_mixed are the optimizer's precision, not the model's: the artifact is what others load.
_SAVED_DTYPES = {"bf16": "bfloat16", "bf16_mixed": "bfloat16", "fp32": "float32"}
_STORED_NAMES = {"bfloat16": "BF16", "float32": "F32"}
_SAMPLED_TENSORS = 16


def save_final(run: RunDir, *, model: Any, tokenizer: Any, config: Any, generation_config: Any, method: Method) -> dict[str, Any]:
    """Write the trained model to the run's final folder, which appears only once it was read back.

    The folder differs from its base in the weights alone: its configurations and its tokenizer are the base's, without
    what the trainer sets for its own sake. A full model is in bfloat16 (float32 with ``precision = "fp32"``), an
    adapter in float32, as it was trained.

    Args:
        run: Where it goes.
        model: As trained: a transformers model, or a PEFT model around one.
        tokenizer: The base's, untouched.
        config: The base's model configuration.
        generation_config: The base's; None if it has none.
        method: Decides the number format.

    Returns:
        The fields of an ``artifact`` event.

    Raises:
        VeriError: ``artifact_invalid``: what was read back is not what was written.
        OSError: It could not be written; nothing is left behind.
    """
    import torch

    scratch = run.root / ".final.tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        if method.lora_rank:
            expected = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
            dtype = "float32"
            # "auto" asks the hub whether the embeddings were resized; they never are.
            model.save_pretrained(scratch, save_embedding_layers=False)
            (scratch / "README.md").unlink(missing_ok=True)
        else:
            dtype = _SAVED_DTYPES[method.precision]
            model.to(getattr(torch, dtype))
            expected = _elements(model)
            config.dtype = getattr(torch, dtype)
            model.config, model.generation_config = config, generation_config
            model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        verify(scratch, expected, dtype)
        scratch.rename(run.final)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    files = [{"name": path.name, "bytes": path.stat().st_size} for path in sorted(run.final.iterdir())]
    return {"path": str(run.final), "files": files, "verified": True}


def verify(folder: Path, expected_elements: int, dtype: str) -> None:
    """Read a saved model back: every header, a sample of its tensors, its configuration and its tokenizer.

    Args:
        folder: The model.
        expected_elements: Numbers that its weight files hold together, tied weights once.
        dtype: Their format, as torch calls it.

    Raises:
        VeriError: ``artifact_invalid``.
    """
    try:
        found = _read_back(folder, _STORED_NAMES[dtype])
        if found != expected_elements:
            raise BrokenFile(f"{found:,} numbers found, {expected_elements:,} expected")
        _load_texts(folder)
    except (BrokenFile, ValueError, OSError) as error:
        raise VeriError("artifact_invalid", f"the saved model cannot be trusted: {error}") from error


def _elements(model: Any) -> int:
    """Numbers in a model's state, tensors that share their memory once."""
    unique: dict[int, torch.Tensor] = {tensor.data_ptr(): tensor for tensor in model.state_dict().values()}
    return sum(tensor.numel() for tensor in unique.values())


def _read_back(folder: Path, stored_dtype: str) -> int:
    total = 0
    for path in weight_files(folder):
        tensors = stored_tensors(path)
        for name, tensor in tensors.items():
            if tensor.dtype != stored_dtype:
                raise BrokenFile(f"{path.name}: {name} is {tensor.dtype}, not {stored_dtype}")
        _check_sample(path, list(tensors))
        total += sum(tensor.elements for tensor in tensors.values())
    return total


def _check_sample(path: Path, names: list[str]) -> None:
    from safetensors import safe_open

    stride = -(-len(names) // _SAMPLED_TENSORS)
    with safe_open(path, framework="pt") as file:
        for name in names[:: stride or 1]:
            if not bool(file.get_tensor(name).isfinite().all()):
                raise BrokenFile(f"{path.name}: {name} has values that are not finite")


def _load_texts(folder: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer

    if (folder / "adapter_config.json").exists():
        from peft import PeftConfig

        PeftConfig.from_pretrained(folder)
    else:
        AutoConfig.from_pretrained(folder)
    AutoTokenizer.from_pretrained(folder)
