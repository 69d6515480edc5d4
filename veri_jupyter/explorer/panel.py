"""The right side: picture, what one click changes, launch, and the same job as text. It shows what it is told."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import ipywidgets as widgets

from veri_jupyter.environment import hear_while_busy
from veri_jupyter.explorer import picture, text, ways
from veri_jupyter.explorer.fields import Quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernel_launcher.errors import Fault
    from kernel_launcher.planner import Plan
    from veri_jupyter.explorer.data import Rows
    from veri_jupyter.explorer.state import Judged, State
    from veri_jupyter.explorer.ways import Way

_DECIDED = 0  # the part of the accordion that is only filled while it is open
# Where a page lets no script run, the text is there to be copied by hand.
_COPY = (
    '<button type="button" class="vx-copy" onclick="const t = this.closest(\'.vx\').querySelector(\'textarea\'); '
    "t.select(); document.execCommand('copy'); this.textContent = 'Copied'; "
    "setTimeout(() => this.textContent = 'Copy', 1500)\">Copy</button>"
)


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

    def look_again(self) -> None:
        """Something else is in sight."""


class Panel:
    """The right side.

    Args:
        actions: What somebody can do.
    """

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._ways: list[Way | None] = [None] * (ways.MOST_LEVERS + ways.MOST_OTHERS)
        self._quietly = Quietly()
        html = widgets.HTML
        self._verdict, self._memory, self._why = html(), html(), html()
        self._decided, self._said, self._text_said = html(), html(), html()
        self._buttons = [self._button(partial(self._take, place), "vx-way") for place in range(len(self._ways))]
        self._undo = self._button(actions.undo, "vx-undo", "Undo", "take the last change back")
        self._launch = self._button(actions.launch, "vx-launch", "Launch", "start this job here")
        self._as = widgets.ToggleButtons(options=list(text.FORMS), tooltips=[f"as {form}" for form in text.FORMS])
        self._as.observe(lambda _: actions.look_again(), "value")
        self._text = widgets.Textarea(rows=12, tooltip="this job as text; another one can be pasted")
        self._text.observe(self._pasted, "value")
        self._more = self._folded()
        self._foot = widgets.HBox([self._launch, self._undo, self._said])
        levers, others = self._buttons[: ways.MOST_LEVERS], self._buttons[ways.MOST_LEVERS :]
        levers = [html("<h4>Next: the cheapest that lower the memory</h4>"), *levers]
        others = [html("<h4>Others: the same batch in another way</h4>"), *others]
        # In the order of a narrow page; the form stands before the last.
        self.head = [self._verdict, self._memory, widgets.VBox(levers)]
        self.rest = widgets.VBox([*others, self._why, self._foot, self._more])
        for control in (self._as, self._text, self._more):
            hear_while_busy(control)
        named = zip((*self.head, self.rest), ("vx-top", "vx-bar", "vx-next", "vx-rest"), strict=True)
        for widget, name in (*named, (self._foot, "vx-foot"), (self._more, "vx-more")):
            widget.add_class(name)

    def draw(self, state: State, judged: Judged, rows: Rows, last: Plan | None) -> None:
        """Show what came of the settings; where they are refused, ``last``, the plan before, stays in sight."""
        plan = judged.plan
        self._verdict.value = picture.verdict(judged, rows)
        self._memory.value = picture.memory(last, stale=plan is None)
        if plan is None:
            for button in self._buttons:
                button.disabled = True
            return
        found = plan.alternatives()
        self._offer(ways.levers(state, plan), ways.others(state, plan, found))
        self._why.value = picture.why(plan, ways.stages(plan, found))
        if self._more.selected_index == _DECIDED:
            self._decided.value = picture.decided(plan)

    def say_broken(self, error: Exception, last: Plan | None) -> None:
        """Say that what was set last could not be drawn; ``last``, the plan before, stays in sight."""
        self._verdict.value = picture.broken(error)
        for button in self._buttons:
            button.disabled = True
        self._memory.value = picture.memory(last, stale=True)

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
        self._said.value = picture.note(hindrance or said)

    def _offer(self, levers: Sequence[Way], others: Sequence[Way]) -> None:
        padded: list[Way | None] = [*levers, *[None] * (ways.MOST_LEVERS - len(levers)), *others]
        padded += [None] * (len(self._ways) - len(padded))
        self._ways = padded
        for button, way in zip(self._buttons, padded, strict=True):
            button.description = "nothing more" if way is None else way.text
            button.disabled = way is None

    def _take(self, place: int) -> None:
        way = self._ways[place]
        if way is not None:
            self._actions.take(way)

    def _pasted(self, change: dict[str, Any]) -> None:
        if not self._quietly.is_this_thread:
            self._actions.paste(change["new"])

    def _folded(self) -> widgets.Accordion:
        copy = widgets.HBox([self._as, widgets.HTML(_COPY)])
        titles = ("How it was decided", "Copy or paste: cell, Python, TOML")
        parts = [self._decided, widgets.VBox([copy, self._text, self._text_said])]
        more = widgets.Accordion(parts, titles=titles, selected_index=None)
        more.observe(lambda _: self._actions.look_again(), "selected_index")
        return more

    def _button(self, press: Callable[[], None], name: str, text: str = "—", tooltip: str = "") -> widgets.Button:
        button = widgets.Button(description=text, tooltip=tooltip)
        button.add_class(name)
        button.on_click(lambda _: press())
        hear_while_busy(button)
        return button
