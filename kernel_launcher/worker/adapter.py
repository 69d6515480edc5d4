"""The LoRA adapter that a plan asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn
from transformers.pytorch_utils import Conv1D

from kernel_launcher.worker.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel_launcher.spec.fields import Method
    from kernel_launcher.worker.base import Base


def lora_config(model: Any, method: Method, warn: Callable[[str], None]) -> Any:
    """The adapter's configuration, or None for a full fine-tune.

    Raises:
        ConfigError: The targets name no layer of this model, or its output layer.
    """
    if method.lora_rank is None:
        return None
    from peft import LoraConfig

    return LoraConfig(
        task_type="CAUSAL_LM",
        r=method.lora_rank,
        lora_alpha=method.lora_alpha,
        lora_dropout=method.lora_dropout,
        target_modules=_targets(model, method.lora_target_modules, warn),
    )


def name_base(model: Any, base: Base) -> None:
    """Let the adapter point to its base as the user knows it, not to a folder in a cache."""
    config = model.peft_config["default"]
    config.base_model_name_or_path = base.name
    config.revision = base.revision


def _targets(model: Any, asked: tuple[str, ...], warn: Callable[[str], None]) -> list[str]:
    output = model.get_output_embeddings()
    linear = {name: layer for name, layer in model.named_modules() if isinstance(layer, (nn.Linear, Conv1D)) and name}
    for target in asked:
        if any(_fits(name, target) and layer is output for name, layer in linear.items()):
            reason = f'"{target}" is the output layer, which cannot have an adapter.'
            raise ConfigError(f"method.lora_target_modules: {reason}", "Leave it out.")
    found = [target for target in asked if any(_fits(name, target) for name in linear)]
    known = sorted({name.rpartition(".")[2] for name, layer in linear.items() if layer is not output})
    if not found:
        raise ConfigError(
            f"method.lora_target_modules: a {type(model).__name__} has none of {', '.join(asked)}.",
            f"Its linear layers are: {', '.join(known)}.",
        )
    if len(found) < len(asked):
        lacking = ", ".join(target for target in asked if target not in found)
        warn(f"the model has no layers named {lacking}; the adapter is on {', '.join(found)}.")
    return found


def _fits(name: str, target: str) -> bool:
    """As PEFT matches a list of targets."""
    return name == target or name.endswith(f".{target}")
