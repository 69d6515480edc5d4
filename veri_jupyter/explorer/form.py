"""The left side: what is asked first, and the other settings under heads that are filled when they are opened."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from kernel_launcher.facts import gpu_names
from kernel_launcher.facts.catalogue import model_ids
from kernel_launcher.planner.levers import LORA_RANK
from veri_jupyter.environment import hear_while_busy
from veri_jupyter.explorer.fields import Field, Quietly
from veri_jupyter.explorer.fold import Fold
from veri_jupyter.explorer.knobs import FIRST, knobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernel_launcher.errors import Fault
    from kernel_launcher.planner import Plan
    from veri_jupyter.explorer.fields import Edited
    from veri_jupyter.explorer.knobs import Knob
    from veri_jupyter.explorer.state import State

LORA = "lora"  # not a setting: whether there is an adapter
_MICRO = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_LENGTHS = tuple(step * 2**power for power in range(7, 17) for step in (1, 1.5))
_STOPS: dict[str, Sequence[int | str]] = {
    "resources.gpu_count": tuple(range(1, 9)),
    "method.micro_batch_size": ("auto", *_MICRO),
    "method.max_seq_length": tuple(map(int, _LENGTHS)),
    "method.max_length": tuple(map(int, _LENGTHS)),
    "method.lora_rank": (4, 8, 16, 32, 64, 128, 256),
}


class Form:
    """The controls.

    Args:
        state: What to show.
        data: Names that may be typed as the data: variables and files.
        edited: Called when somebody sets something.
        opened: Called when a head is opened or closed.
    """

    def __init__(self, state: State, data: Sequence[str], edited: Edited, opened: Callable[[], None]) -> None:
        self._edited = edited
        self._options = {"model.base": model_ids(), "dataset.id": data}
        self._fields: dict[str, Field] = {}
        self._quietly = Quietly()
        self._lora = widgets.ToggleButtons(
            options=[("LoRA", True), ("full", False)], value=state.has_lora, description="train",
            tooltips=["an adapter beside the frozen weights", "every weight"],
        )  # fmt: skip
        self._lora.observe(self._switched, "value")
        first = [self._field(knob).widget for knob in knobs()[FIRST]]
        first.insert(3, widgets.VBox([self._lora]))
        first[3].add_class("vx-field")
        hear_while_busy(self._lora)
        self._folds = {head: Fold(head, (), opened) for head in knobs() if head != FIRST}
        asked_first = widgets.Box(first)
        self.widget = widgets.VBox([asked_first, *(fold.widget for fold in self._folds.values())])
        self.widget.add_class("vx-form")
        asked_first.add_class("vx-first")

    def fill(self, state: State, plan: Plan | None, faults: Sequence[Fault], source: object = None) -> None:
        """Show a state: each setting, what the plan made of those that are open, each refusal beside its setting."""
        self._fill_open_heads()
        by_key = {fault.key: fault for fault in reversed(faults)}
        for key, field in self._fields.items():
            value = state.rows or state.settings.get(key) if key == "dataset.id" else state.settings.get(key)
            field.fill(value, _decided(plan, key), source)
            field.say(by_key.get(key))
        for key in ("method.max_seq_length", "method.max_length"):
            self._fields[key].widget.layout.display = None if key == state.length_key else "none"
        if source is not self._lora:
            with self._quietly:
                self._lora.value = state.has_lora
        for head, fold in self._folds.items():
            fold.title = _title(head, state, by_key)

    def _fill_open_heads(self) -> None:
        """Make the controls of a head that is open for the first time."""
        for head, fold in self._folds.items():
            if fold.is_open and not fold.body.children:
                fold.body.children = [self._field(knob).widget for knob in knobs()[head]]

    def _field(self, knob: Knob) -> Field:
        if knob.key == "resources.gpu_type":
            knob = replace(knob, kind="choice", choices=tuple(gpu_names()))
        field = Field(knob, self._edited, options=self._options.get(knob.key, ()), stops=_STOPS.get(knob.key, ()))
        self._fields[knob.key] = field
        return field

    def _switched(self, change: dict[str, Any]) -> None:
        if not self._quietly.is_this_thread:
            self._edited(LORA, LORA_RANK if change["new"] else None, self._lora)


def _decided(plan: Plan | None, key: str) -> Any:
    if plan is None:
        return None
    section, _, name = key.partition(".")
    return getattr({"method": plan.method, "resources": plan.resources}.get(section), name, None)


def _title(head: str, state: State, by_key: dict[str, Fault]) -> str:
    changed = state.changed(head)
    refused = any(knob.key in by_key for knob in knobs()[head])
    marks = [f"{changed} changed" if changed else "", "refused" if refused else ""]
    return " · ".join([head, *filter(None, marks)])
