"""One setting on screen: its control, with a slider where that helps, and a line below."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from kernel_launcher.spec.read import parse_override
from veri_jupyter.environment import hear_while_busy
from veri_jupyter.explorer import picture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernel_launcher.errors import Fault
    from veri_jupyter.explorer.knobs import Knob

    # Key, value, and the control that they come from.
    Edited = Callable[[str, Any, object], None]

_GROUPED = re.compile(r"\d{1,3}(,\d{3})+")
_PLAN_ONLY = " (to plan only, in this release)"
_OPEN = "open"
_LONG = 18  # letters of a name that has a line of its own


class Quietly:
    """While a thread is in it, what that thread sets is no message from the browser; one may come in another."""

    def __init__(self) -> None:
        self._thread: int | None = None

    def __enter__(self) -> None:
        self._thread = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._thread = None

    @property
    def is_this_thread(self) -> bool:
        return self._thread == threading.get_ident()


class Field:
    """A setting.

    Args:
        knob: What it is.
        edited: Called when somebody sets it, in whatever thread the message comes.
        options: What may be typed.
        stops: Where its slider stops.
    """

    def __init__(
        self, knob: Knob, edited: Edited, *, options: Sequence[str] = (), stops: Sequence[int | str] = ()
    ) -> None:
        self.knob = knob
        self._edited = edited
        self._quietly = Quietly()
        self._choices = [(_OPEN if value is None else str(value), value) for value in knob.choices]
        self._control = self._made(options)
        self._control.observe(self._typed, "value")
        self._help = knob.help + (_PLAN_ONLY if knob.plan_only else "")
        self._hint = widgets.HTML(picture.hint(self._help))
        self._slider: widgets.SelectionSlider | None = None
        parts = [self._control]
        if stops:
            slider_options = [(str(stop), stop) for stop in stops]
            self._slider = widgets.SelectionSlider(
                options=slider_options, readout=False, tooltip=f"{knob.label} slider"
            )
            self._slider.observe(self._typed, "value")
            parts.append(self._slider)
        for part in parts:
            hear_while_busy(part)
        self.widget = widgets.VBox([*parts, self._hint])
        self.widget.add_class("vx-field")
        if len(knob.label) > _LONG:
            self.widget.add_class("vx-long")

    def fill(self, value: Any, decided: Any = None, source: object = None) -> None:
        """Show a value, or while it is open what the plan decided.

        Args:
            value: As it is set, right or wrong; None while it is open.
            decided: The plan's value.
            source: The control that this comes from: nobody likes to be overwritten while typing.
        """
        with self._quietly:
            if source is not self._control:
                self._fill(value)
            if decided is not None and hasattr(self._control, "placeholder"):
                self._control.placeholder = as_text(decided)
            if self._slider is not None and source is not self._slider:
                self._slide(decided if value is None else value)

    def say(self, fault: Fault | None) -> None:
        """Put a refusal beside the control, or its help."""
        self._hint.value = picture.hint(self._help, fault)

    def _made(self, options: Sequence[str]) -> widgets.Widget:
        knob, label = self.knob, {"description": self.knob.label, "tooltip": self.knob.help}
        if knob.kind == "flag":
            return widgets.Checkbox(value=bool(knob.default), indent=False, **label)
        if knob.kind == "choice":
            return widgets.Dropdown(options=self._choices, value=knob.default, **label)
        if options:
            return widgets.Combobox(options=tuple(options), continuous_update=False, **label)
        return widgets.Text(continuous_update=False, **label)

    def _fill(self, value: Any) -> None:
        if self.knob.kind == "flag":
            self._control.value = value if isinstance(value, bool) else bool(self.knob.default)
        elif self.knob.kind == "choice":
            self._choose(self.knob.default if value is None else value)
        else:
            self._control.value = "" if value is None else as_text(value)

    def _choose(self, value: Any) -> None:
        """Also what is no choice: a text may say anything. It is then one more choice, by its words."""
        values = [choice for _, choice in self._choices]
        place = next((i for i, each in enumerate(values) if type(each) is type(value) and each == value), len(values))
        if place == len(values):
            self._control.options = [*self._choices, (as_text(value), as_text(value))]
        elif len(self._control.options) > len(values):
            self._control.options = self._choices
        self._control.index = place

    def _slide(self, value: Any) -> None:
        assert self._slider is not None
        stops = [stop for _, stop in self._slider.options]
        if isinstance(value, int) and not isinstance(value, bool):
            below = [place for place, stop in enumerate(stops) if isinstance(stop, int) and stop <= value]
            self._slider.index = below[-1] if below else 0
        elif value in stops:
            self._slider.index = stops.index(value)

    def _typed(self, change: dict[str, Any]) -> None:
        if self._quietly.is_this_thread:
            return
        value, control = change["new"], change["owner"]
        if control is self._control and self.knob.kind not in ("flag", "choice"):
            value = as_value(self.knob, value)
        self._edited(self.knob.key, value, control)


def as_value(knob: Knob, text: str) -> Any:
    """What a text means for a setting; None for an empty one, and the text itself for one that means nothing."""
    text = text.strip()
    if not text:
        return None
    if knob.kind == "text":
        return text
    if knob.kind == "list":
        return [
            _number(part.strip()) if knob.key == "resources.gpu_ids" else part.strip() for part in text.split(",")
        ]
    return _number(text)


def as_text(value: Any) -> str:
    """A value as somebody would type it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(as_text, value))
    return str(value)


def _number(text: str) -> Any:
    return parse_override(f"value={text.replace(',', '') if _GROUPED.fullmatch(text) else text}")[1]
