"""What the planner says of a row, where it can be imported."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from gpu_check.rows import LORA_RANK, MODELS, TARGETS, TINY, Row

import kernel_launcher

_ROOM = 0.8  # of the memory: the rest is for context, fragments, and other peaks than that of tensors


def open_planner() -> None:
    """Make the planner's arithmetic importable without pydantic, which only the front door of the package needs."""
    if importlib.util.find_spec("pydantic") is None:
        package = ModuleType("kernel_launcher.planner")
        package.__path__ = [str(Path(kernel_launcher.__file__).parent / "planner")]
        sys.modules[package.__name__] = package


def config_of(row: Row, *, ranks: int, loss: str, memory: int | None) -> dict[str, Any]:
    """A model's config.json; of a large model, as many layers as fit.

    Args:
        row: The run.
        ranks: Of the group.
        loss: See ``Workload``.
        memory: Bytes of the GPU; None for the tiny model.
    """
    model = dict(TINY if memory is None else MODELS[row.group])
    most = model.pop("layers")
    model |= {"tie_word_embeddings": True, "num_hidden_layers": most}
    if memory is None:
        return model
    for layers in range(most, 1, -1):
        model["num_hidden_layers"] = layers
        if planned_peak(row, model, ranks=ranks, loss=loss, length=1024, device="cuda") <= _ROOM * memory:
            break
    return model


def planned_peak(row: Row, config: dict[str, Any], *, ranks: int, loss: str, length: int, device: str) -> float:
    """Bytes of tensors that one rank should hold at most."""
    from kernel_launcher.planner.peak import Peak, peak
    from kernel_launcher.planner.shape import from_config
    from kernel_launcher.planner.workload import Lora, Workload

    rounds = row.precision == "bf16" and not row.lora and not row.nearest
    workload = Workload(
        zero_stage=row.stage,
        world_size=ranks,
        micro_batch_size=row.micro_batch,
        length=length,
        precision=row.precision,
        recompute=row.recompute,
        lora=Lora(rank=LORA_RANK, targets=TARGETS) if row.lora else None,
        optimizer="stochastic" if rounds else "fused",
        loss=loss,
        mask="never",
        cpu_offload=row.offload,
        device=device,
    )
    found = peak(workload, from_config(config))
    assert isinstance(found, Peak), found
    return found.tensor_bytes
