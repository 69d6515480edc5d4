"""The right side: picture, what one click changes, launch, and the same job as text. It shows what it is told."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import ipywidgets as widgets

from veri_jupyter.environment import hear_while_busy
from veri_jupyter.explorer import picture, text, ways
from veri_jupyter.explorer.every import Every
from veri_jupyter.explorer.fields import Quietly
from veri_jupyter.explorer.fold import Fold
from veri_jupyter.explorer.learns import Learns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernel_launcher.errors import Fault
    from kernel_launcher.planner import Plan
    from veri_jupyter.explorer.data import Rows
    from veri_jupyter.explorer.looks import Seen
    from veri_jupyter.explorer.measures import Offer
    from veri_jupyter.explorer.state import Judged, State
    from veri_jupyter.explorer.ways import Way

# Where a page lets no script run, the text is there to be copied by hand.
_COPY = (
    '<button type="button" class="vx-copy" onclick="const t = this.closest(\'.vx\').querySelector(\'textarea\'); '
    "t.select(); document.execCommand('copy'); this.textContent = 'Copied'; "
    "setTimeout(() => this.textContent = 'Copy', 1500)\">Copy</button>"
)
_LAUNCH = "start this job here"
_TRACE = "Trace, 30 s, no GPU"


class Actions(Protocol):
    """What somebody can do here; each is called in whatever thread its message comes."""

    def take(self, way: Way) -> None:
        """Change what a lever or another way changes."""

    def paste(self, pasted: str) -> None:
        """Describe the job by a text."""

    def undo(self) -> None:
        """Take the last change back."""

    def launch(self) -> None:
        """Start the job."""

    def measure(self) -> None:
        """Measure a step of what is in sight."""

    def look_again(self) -> None:
        """Something else is in sight."""

    def post(self, action: Callable[[], None]) -> None:
        """Run something in the thread that owns the widgets."""


class Panel:
    """The right side.

    Args:
        actions: What somebody can do.
    """

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._ways: list[Way | None] = [None] * (ways.MOST_LEVERS + ways.MOST_OTHERS)
        self._quietly = Quietly()
        self._learns = Learns(actions.post)
        self._all = Every(actions)
        html = widgets.HTML
        self._verdict, self._memory, self._why = html(), html(), html()
        self._decided, self._said, self._text_said, self._offer_said = html(), html(), html(), html()
        self._buttons = [self._button(partial(self._take, place), "vx-way") for place in range(len(self._ways))]
        self._undo = self._button(actions.undo, "vx-undo", "Undo", "take the last change back")
        self._launch = self._button(actions.launch, "vx-launch", "Launch", _LAUNCH)
        how = "measure one step with torch's tracker, in a process of its own"
        self._trace = self._button(actions.measure, "vx-trace", _TRACE, how)
        self._offer_row = widgets.HBox([self._trace, self._offer_said])
        self._as = widgets.ToggleButtons(options=list(text.FORMS), tooltips=[f"as {form}" for form in text.FORMS])
        self._as.observe(lambda _: actions.look_again(), "value")
        self._text = widgets.Textarea(rows=12, tooltip="this job as text; another one can be pasted")
        self._text.observe(self._pasted, "value")
        turned = actions.look_again
        self._rows_fold = Fold("What it learns", (self._learns.widget,), turned)
        self._decided_fold = Fold("How it was decided", (self._decided,), turned)
        copy = widgets.HBox([self._as, html(_COPY)])
        text_fold = Fold("Copy or paste: cell, Python, TOML", (copy, self._text, self._text_said), turned)
        folds = [fold.widget for fold in (self._rows_fold, self._decided_fold, text_fold)]
        foot = widgets.HBox([self._launch, self._undo])
        levers, others = self._buttons[: ways.MOST_LEVERS], self._buttons[ways.MOST_LEVERS :]
        levers = [html("<h4>Next: the cheapest that lower the memory</h4>"), *levers]
        others = [html("<h4>Others: the same batch in another way</h4>"), *others]
        # In the order of the page; the form stands between the two.
        self.head = [self._verdict, widgets.VBox([self._memory, self._offer_row]), widgets.VBox(levers)]
        self.rest = [widgets.VBox([*others, self._all.widget, self._why]), foot, self._said, widgets.VBox(folds)]
        for control in (self._as, self._text):
            hear_while_busy(control)
        names = ("vx-top", "vx-bar", "vx-next", "vx-others", "vx-foot", "vx-said", "vx-more")
        for widget, name in zip((*self.head, *self.rest), names, strict=True):
            widget.add_class(name)
        text_fold.widget.add_class("vx-text")
        self._offer_row.add_class("vx-offer")

    def draw(self, state: State, plan: Plan | None, last: Plan | None) -> None:
        """Show the plan; where the settings are refused, ``last``, the plan before, stays in sight."""
        self._memory.value = picture.memory(last, stale=plan is None)
        if plan is None:
            self._offer_nothing()
            return
        found = plan.alternatives()
        self._offer(ways.levers(state, plan), ways.others(state, plan, found))
        self._all.draw(state, plan, found)
        self._why.value = picture.why(plan, ways.stages(plan, found))
        if self._decided_fold.is_open:
            self._decided.value = picture.decided(plan)

    def draw_offer(self, offer: Offer) -> None:
        """The button that measures, and what there is to say beside it; neither where the memory model can say."""
        self._offer_row.layout.display = None if offer.said else "none"
        self._trace.layout.display = None if offer.is_possible else "none"
        self._trace.disabled = offer.is_measuring
        self._trace.description = "Tracing…" if offer.is_measuring else _TRACE
        self._offer_said.value = picture.note(offer.said)

    def say_broken(self, error: Exception, last: Plan | None) -> None:
        """Say that what was set last could not be drawn; ``last``, the plan before, stays in sight."""
        self._verdict.value = picture.broken(error)
        self._offer_nothing()
        self._memory.value = picture.memory(last, stale=True)

    @property
    def shows_rows(self) -> bool:
        """Whether somebody looks at what the model would learn."""
        return self._rows_fold.is_open

    def draw_rows(self, judged: Judged, rows: Rows, seen: Seen) -> None:
        """The verdict with what the rows have to do with it, and the rows as tokens."""
        self._verdict.value = picture.verdict(judged, rows)
        if self.shows_rows:
            self._learns.draw(seen)

    def write(self, state: State) -> None:
        """Show the job as text."""
        with self._quietly:
            self._text.value = text.FORMS[self._as.value](state)
        self._text_said.value = ""

    def say_of_text(self, fault: Fault | None) -> None:
        """Say whether a text could be read."""
        self._text_said.value = picture.hint("Read; the form shows it.", fault)

    def draw_foot(self, *, can_undo: bool, launching: bool, hindrance: str, said: str) -> None:
        """Launch, undo, and a line.

        Args:
            can_undo: Whether there is a change to take back.
            launching: Whether a job is being started.
            hindrance: Why none can be started; empty where nothing hinders it.
            said: What to say where nothing does.
        """
        self._undo.disabled = not can_undo
        self._launch.disabled = launching or bool(hindrance)
        self._launch.description = "Starting…" if launching else "Launch"
        self._launch.tooltip = hindrance or _LAUNCH  # the line may be out of sight
        self._said.value = picture.note(hindrance or said)

    def _offer(self, levers: Sequence[Way], others: Sequence[Way]) -> None:
        padded: list[Way | None] = [*levers, *[None] * (ways.MOST_LEVERS - len(levers)), *others]
        padded += [None] * (len(self._ways) - len(padded))
        self._ways = padded
        for button, way in zip(self._buttons, padded, strict=True):
            button.description = "nothing more" if way is None else way.text
            button.disabled = way is None

    def _offer_nothing(self) -> None:
        self._all.disable()
        for button in self._buttons:
            button.disabled = True

    def _take(self, place: int) -> None:
        way = self._ways[place]
        if way is not None:
            self._actions.take(way)

    def _pasted(self, change: dict[str, Any]) -> None:
        if not self._quietly.is_this_thread:
            self._actions.paste(change["new"])

    def _button(self, press: Callable[[], None], name: str, text: str = "—", tooltip: str = "") -> widgets.Button:
        button = widgets.Button(description=text, tooltip=tooltip)
        button.add_class(name)
        button.on_click(lambda _: press())
        hear_while_busy(button)
        return button
