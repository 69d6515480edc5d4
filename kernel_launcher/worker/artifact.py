"""The final model: written beside its place, read back, and only then put there."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from peft import get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoTokenizer
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict

from kernel_launcher.facts.model import BrokenModelError, safetensors_shapes, weight_files
from kernel_launcher.worker.base import can_write
from kernel_launcher.worker.errors import ArtifactInvalid
from kernel_launcher.worker.precision import Precision

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from kernel_launcher.protocol.paths import RunDir
    from kernel_launcher.spec.fields import Method

Shapes = dict[str, tuple[int, ...]]

_ADAPTER = "adapter_model.safetensors"
_SAMPLED_TENSORS = 16


def save_final(
    run: RunDir,
    *,
    model: Any,
    tokenizer: Any,
    config: Any,
    generation_config: Any,
    stops_anew: bool = False,
    method: Method,
    trust_remote_code: bool,
) -> dict[str, Any]:
    """Write the trained model to the run's final folder, which appears only once it was read back.

    The folder differs from its base in the weights alone: its configurations and its tokenizer are the base's,
    without what the trainer sets for its own sake; where it was trained on chats, also in another chat template and
    in the token at which that ends an answer. A full model is in bfloat16 (float32 with ``precision = "fp32"``),
    an adapter in float32, as it was trained.

    Args:
        run: Where it goes.
        model: As trained: a transformers model, or a PEFT model around one.
        tokenizer: The base's, with the chat template of the training.
        config: The base's model configuration.
        generation_config: The base's, stopping as the chat template does; None if it has none.
        stops_anew: Whether the base's own does not stop there, so that an adapter needs one, too.
        method: Says whether there is an adapter, and decides the number format.
        trust_remote_code: Whether code that the base ships may run: the model is read back with it.

    Returns:
        The fields of an ``artifact`` event.

    Raises:
        ArtifactInvalid: What was read back is not what was written; it stays in ``.final.tmp`` for a person to see.
        OSError: It could not be written; nothing is left behind.
    """
    scratch = run.final_scratch
    shutil.rmtree(scratch, ignore_errors=True)
    dtype = Precision.of(method).saved
    try:
        if method.lora_rank:
            expected = _shapes(get_peft_model_state_dict(model, save_embedding_layers=False))
            # "auto" would ask the hub whether the embeddings were resized; they never are.
            model.save_pretrained(scratch, save_embedding_layers=False)
            (scratch / "README.md").unlink()  # an empty form, but for this machine's path to the base
            if stops_anew:
                generation_config.save_pretrained(scratch)
        else:
            model.to(dtype)
            model.config, model.generation_config = config, generation_config
            expected = shapes_on_disk(model)
            model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        verify(scratch, expected, dtype, trust_remote_code=trust_remote_code)
        scratch.rename(run.final)
    except ArtifactInvalid:
        raise
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    files = [{"name": path.name, "bytes": path.stat().st_size} for path in sorted(run.final.iterdir())]
    return {"path": str(run.final), "files": files, "verified": True}


def shapes_on_disk(model: Any) -> Shapes:
    """The weights of a full model as its files name them: tied ones once, experts apart that the model has joined."""
    weights = remove_tied_weights_from_state_dict(model.state_dict(), model)
    without_memory = {name: tensor.to("meta") for name, tensor in weights.items()}
    return _shapes(revert_weight_conversion(model, without_memory))


def verify(folder: Path, expected: Shapes, dtype: torch.dtype, *, trust_remote_code: bool = False) -> None:
    """Read a saved model back: every header, a sample of its tensors, its configuration and its tokenizer.

    Args:
        folder: The model, whole or an adapter.
        expected: The weights that its files must hold, and no others.
        dtype: Their format.
        trust_remote_code: Whether code in the folder may run.

    Raises:
        ArtifactInvalid: It is not whole.
    """
    adapter = folder / _ADAPTER
    try:
        files = [adapter] if adapter.exists() else weight_files(folder)
        _check_shapes(
            expected, {name: tuple(shape) for file in files for name, shape in safetensors_shapes(file).items()}
        )
        for file in files:
            _check_tensors(file, dtype)
        if not adapter.exists():
            AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
        _check(can_write(tokenizer), "its tokenizer has no vocabulary")
    except (BrokenModelError, SafetensorError, ValueError, OSError) as error:
        raise ArtifactInvalid(f"the saved model cannot be trusted: {error}", f"It is kept in {folder}.") from error


def _shapes(weights: Mapping[str, torch.Tensor]) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}


def _check_shapes(expected: Shapes, found: Shapes) -> None:
    for name, shape in expected.items():
        _check(name in found, f"{name} is missing")
        _check(found[name] == shape, f"{name} is {found[name]}, not {shape}")
    for name in found:
        _check(name in expected, f"{name} does not belong there")


def _check_tensors(file: Path, dtype: torch.dtype) -> None:
    with safe_open(file, framework="pt") as stored:
        names = list(stored.keys())
        stride = max(1, len(names) // _SAMPLED_TENSORS)
        for name in names[::stride]:
            tensor = stored.get_tensor(name)
            _check(tensor.dtype == dtype, f"{file.name}: {name} is {tensor.dtype}, not {dtype}")
            _check(bool(tensor.isfinite().all()), f"{file.name}: {name} has values that are not finite")


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BrokenModelError(otherwise)
