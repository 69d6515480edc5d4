"""Learning rates and adapter ranks: what is usual, and what is far from it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kernel_launcher.planner.shape import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_launcher.planner.inputs import ModelFacts
    from kernel_launcher.spec.fields import Method

_SMALL_MODEL = 1_000_000_000
# SmolLM2-135M was destroyed at a hundred times the default, full and LoRA; at ten times LoRA's it still learned.
_FAR_ABOVE, _FAR_BELOW = 100, 1 / 1000


def default_rate(asked: Method, model: ModelFacts) -> tuple[float, str]:
    """The learning rate of a job that names none, and why."""
    kind = "a LoRA adapter" if asked.lora_rank else "a full fine-tune"
    if asked.type == "dpo":
        return 5e-5 if asked.lora_rank else 5e-6, f"usual for {kind} with DPO."
    if asked.lora_rank:
        return 2e-4, f"usual for {kind}."
    # Of a model of 135 million, 2e-5 left 3 % of the held-out loss behind (scripts/default_rates.md).
    if model.param_count and model.param_count < _SMALL_MODEL:
        return 5e-5, f"usual for {kind} of fewer than a billion parameters."
    return 2e-5, f"usual for {kind}."


def unusual(method: Method, model: ModelFacts) -> Iterator[str]:
    """Warnings of a learning rate or a rank that is hardly what was meant."""
    yield from _rate(method, model)
    yield from _rank(method, model)


def _rate(method: Method, model: ModelFacts) -> Iterator[str]:
    # What is usual is so for Adam and its kin, whose steps do not grow with the gradient.
    if method.optim == "sgd" or method.learning_rate is None:
        return
    usual, reason = default_rate(method, model)
    times = method.learning_rate / usual
    given = f"learning_rate = {method.learning_rate:g}"
    said = f"the {usual:g} that is {reason.removesuffix('.')}"
    if times > _FAR_ABOVE:
        yield f"{given} is {times:,.0f} times {said}: it may destroy the model."
    elif times < _FAR_BELOW:
        yield f"{given} is 1/{1 / times:,.0f} of {said}: the model will hardly learn."


def _rank(method: Method, model: ModelFacts) -> Iterator[str]:
    """A layer's update has no higher rank than the smaller of its sides."""
    if not method.lora_rank or isinstance(model.shape, Unknown):
        return
    linears = model.shape.linears
    full: dict[int, list[str]] = defaultdict(list)
    for name in method.lora_target_modules:
        if name in linears and method.lora_rank > (side := min(linears[name])):
            full[side].append(name)
    if full:
        sides = "; ".join(f"{', '.join(names)}: {side:,}" for side, names in sorted(full.items()))
        yield (
            f"lora_rank = {method.lora_rank:,} is past the smaller side of its layers ({sides}): there an adapter "
            "has more weights than the layer, and does no more than one of that rank."
        )
