"""The phases of a model's training step, measured whole or extended from fewer layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_launcher.tracker.extrapolate import cuts, extended
from kernel_launcher.tracker.model import cut, decoder, skeleton
from kernel_launcher.tracker.run import Run
from kernel_launcher.tracker.step import measure

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping


def trace(config: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """``phases``: the most bytes alive in each phase of a step; ``layers``: how many the measured models had."""
    kinds = _kinds(config)
    count, sizes = len(kinds), cuts(kinds)
    if sizes is not None and any(_kinds(cut(config, n)) != kinds[:n] for n in sizes[:2]):
        sizes = None  # what the last layers are is not told by the first ones
    if sizes is None:
        whole = measure(config, run)
        measured, peaks, trained = [count], dict(whole.peaks), whole.trained_bytes
    else:
        few, more = (measure(cut(config, layers), run) for layers in (sizes.few, sizes.more))
        measured = [sizes.few, sizes.more]
        peaks = extended(few.peaks, more.peaks, sizes, count)
        grown = (more.trained_bytes - few.trained_bytes) * (count - sizes.few) // (sizes.more - sizes.few)
        trained = few.trained_bytes + grown
    # DDP is not wrapped around; its buckets are as large as the gradients, and live as long as it does.
    buckets = trained if run.zero_stage == 0 and run.world_size > 1 else 0
    phases: dict[str, int] = {}
    for stretch, size in peaks.items():
        phases[stretch.phase] = max(phases.get(stretch.phase, 0), size + buckets)
    return {"phases": phases, "layers": measured, "of": count}


def _kinds(config: Mapping[str, Any]) -> list[Hashable]:
    """What tells the layers of a model apart: their kind of attention and their weights."""
    text = decoder(skeleton(config, Run()), Run())
    if not hasattr(text, "layers"):
        raise ValueError(f"{type(text).__name__} has no list of decoder layers")
    kinds = getattr(text.config, "layer_types", None) or [None] * len(text.layers)
    return [
        (kind, tuple((name, tuple(weight.shape)) for name, weight in layer.named_parameters()))
        for kind, layer in zip(kinds, text.layers, strict=True)
    ]
