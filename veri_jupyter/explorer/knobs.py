"""What can be set, read off the fields of a job: kind of control, choices, help, and under which head it stands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from kernel_launcher.spec.fields import NotYet
from kernel_launcher.spec.names import SECTIONS
from kernel_launcher.spec.refusals import TRAINED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

Kind = Literal["choice", "flag", "number", "text", "list"]

FIRST = "first"
# What is asked first, and the heads below it; a setting that is named nowhere stands under the head of its section.
HEADS: dict[str, tuple[str, ...]] = {
    FIRST: (
        "model.base", "dataset.id", "method.type", "resources.gpu_type", "resources.gpu_count",
        "method.micro_batch_size", "method.gradient_accumulation_steps", "method.global_batch_size",
        "method.max_seq_length", "method.max_length", "method.learning_rate",
    ),
    "LoRA": ("method.lora_rank", "method.lora_alpha", "method.lora_dropout", "method.lora_target_modules"),
    "Memory and precision": (
        "method.precision", "method.zero_stage", "method.gradient_checkpointing", "method.cpu_offload",
        "method.load_in_4bit", "method.use_liger", "method.packing", "method.plan_policy",
    ),
    "Length of the run, optimizer": (
        "method.num_epochs", "method.max_steps", "method.optim", "method.lr_scheduler_type", "method.warmup_steps",
        "method.warmup_ratio", "method.weight_decay", "method.max_grad_norm", "method.seed",
    ),
    "Saving and evaluation": (
        "method.checkpoint_every", "method.checkpoint_keep", "method.val_split_ratio", "method.eval_strategy",
        "method.eval_steps", "method.load_best_model_at_end", "method.metric_for_best_model",
        "method.greater_is_better", "method.early_stopping_patience", "method.early_stopping_threshold",
        "method.sample_prompts", "method.sample_every", "huggingface.repo", "huggingface.artifact",
        "huggingface.private",
    ),
    "Data": ("method.loss_on", "method.too_long", "method.chat_template", "method.allow"),
    "DPO": ("method.beta", "method.loss_type", "method.max_prompt_length"),
    "The run itself": ("job.name", "model.revision", "model.trust_remote_code"),
}  # fmt: skip
_BY_SECTION = {"dataset": "Data"}
_REST = "The run itself"
# These follow from the number of GPUs, or describe a job of the user's own script.
_NO_CONTROL = ("method.data_parallel_size", "method.script", "method.args")


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting as a control.

    Attributes:
        key: Dotted, as in a job file.
        kind: What it is set with.
        default: Its value while nobody sets it.
        choices: Values of a choice; None among them leaves it open.
        help: One line.
        plan_only: Whether this release can plan it, and not run it.
    """

    key: str
    kind: Kind
    default: Any
    choices: tuple[Any, ...]
    help: str
    plan_only: bool

    @property
    def name(self) -> str:
        """The field's name."""
        return self.key.partition(".")[2]

    @property
    def label(self) -> str:
        """The field's name, or the word for it where that would say little."""
        return {"model.base": "model", "dataset.id": "data", "method.type": "method"}.get(self.key, self.name)


@cache
def knobs() -> dict[str, tuple[Knob, ...]]:
    """Every setting that this release has, or can plan, by head; a head without one is left out."""
    found = {knob.key: knob for section in SECTIONS for knob in _of(section)}
    heads = {head: [found.pop(key) for key in keys if key in found] for head, keys in HEADS.items()}
    for key, knob in found.items():
        heads[_BY_SECTION.get(key.partition(".")[0], _REST)].append(knob)
    return {head: tuple(listed) for head, listed in heads.items() if listed}


@cache
def knob(key: str) -> Knob | None:
    """The control of a setting, if it has one."""
    return next((each for listed in knobs().values() for each in listed if each.key == key), None)


def _of(section: str) -> Iterator[Knob]:
    for name, info in SECTIONS[section].model_fields.items():
        mark = next((item for item in info.metadata if isinstance(item, NotYet)), None)
        key = f"{section}.{name}"
        if key not in _NO_CONTROL and (mark is None or mark.planned):
            yield _knob(key, info, plan_only=mark is not None)


def _knob(key: str, info: FieldInfo, *, plan_only: bool) -> Knob:
    leaves = list(_leaves(info.annotation))
    values = tuple(value for leaf in leaves if get_origin(leaf) is Literal for value in get_args(leaf))
    values = TRAINED if key == "method.type" else values
    types = {leaf for leaf in leaves if get_origin(leaf) is not Literal and leaf is not type(None)}
    if not types:
        from_open = () if info.default is not None else (None,)
        return Knob(key, "choice", info.default, (*from_open, *values), info.description or "", plan_only)
    kind: Kind = "text"
    if types == {bool}:
        kind = "flag"
    elif types & {int, float}:
        kind = "number"
    elif any(get_origin(leaf) is tuple for leaf in types):
        kind = "list"
    return Knob(key, kind, info.default, values, info.description or "", plan_only)


def _leaves(annotation: Any) -> Iterator[Any]:
    """The plain types and literals that an annotation is made of."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _leaves(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from _leaves(part)
    else:
        yield annotation
