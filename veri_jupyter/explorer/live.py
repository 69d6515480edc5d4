"""The explorer on screen: what somebody does goes into a queue, and one thread makes a picture of what is left of it.

Callbacks only enqueue; the pump's thread owns every widget. Edits that came while it drew are drawn together. What
goes wrong in that thread stands where the picture would be.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from kernel_launcher.data.rows.source import SUFFIXES
from kernel_launcher.errors import Fault, InvalidRequest, VeriError
from kernel_launcher.launcher.client import Watcher
from veri_jupyter import start
from veri_jupyter.explorer import data, text
from veri_jupyter.explorer.form import LORA, Form
from veri_jupyter.explorer.looks import Looks
from veri_jupyter.explorer.measures import Measures
from veri_jupyter.explorer.panel import Panel
from veri_jupyter.explorer.state import Judged, State, judge
from veri_jupyter.monitor.dashboard import Dashboard, close_widgets
from veri_jupyter.monitor.trouble import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernel_launcher.planner import Plan
    from kernel_launcher.spec import JobSpec
    from veri_jupyter.explorer.ways import Way
    from veri_jupyter.job import Job
    from veri_jupyter.monitor.pump import Pump

    Edit = Callable[[State], State]

_log = logging.getLogger(__name__)

_CHANGED = "A setting was changed after the click: nothing was started. Launch starts what is shown now."
_MOST_FILES = 50
_MOST_UNDONE = 100


class Live:
    """One explorer on screen.

    Args:
        state: What it starts with.
        variables: The notebook's, by name.
        pump: Draws it.
        started: Called with each job that was started here.
    """

    def __init__(
        self, state: State, variables: Mapping[str, Any], pump: Pump, started: Callable[[Job], None]
    ) -> None:
        self.state, self.judged = state, Judged()
        self._pump, self._variables, self._on_start = pump, variables, started
        self._rows_of, self._rows = data.RowsOf(variables), data.Rows()
        self._looks = Looks(self.post, self._draw_rows)
        self._measures = Measures(self.post, self._draw)
        self._last: Plan | None = None
        self._edits: deque[tuple[Edit, object]] = deque()
        self._past: list[State] = []
        self._refused: tuple[Fault, ...] = ()  # found when it was to be started, and not by a look at the settings
        self._launching = False
        self._said = ""
        self._form = Form(state, _known_data(variables), self._edited, self.look_again)
        self._panel = Panel(self)
        self._below = widgets.Box()
        both = widgets.Box([*self._panel.head, self._form.widget, *self._panel.rest])
        self.widget = widgets.VBox([widgets.HTML(_style()), both, self._below])
        self.widget.add_class("vx")
        both.add_class("vx-both")
        self._below.add_class("vx-below")
        self._draw()

    def close(self) -> None:
        """Take it off the screen, and out of the kernel."""
        self._looks.forget()
        close_widgets(self.widget)

    def take(self, way: Way) -> None:
        """Change what a lever or another way changes."""
        self._queue(lambda state: state.set(way.changes))

    def paste(self, pasted: str) -> None:
        """Describe the job by a text."""
        self.post(lambda: self._read(pasted))

    def undo(self) -> None:
        """Take the last change back."""
        self.post(self._take_back)

    def launch(self) -> None:
        """Start the job."""
        self.post(self._start)

    def measure(self) -> None:
        """Measure a step of what is in sight."""
        self.post(lambda: self._measures.begin(self.judged))

    def measured(self, judged: Judged) -> Judged:
        """The same with what was measured of it."""
        return self._measures.look(judged)[0]

    def look_again(self) -> None:
        """Draw what has come into sight."""
        self.post(self._look_again)

    def post(self, action: Callable[[], None]) -> None:
        """Run something in the pump's thread; what goes wrong there stands where the picture would be."""
        self._pump.post(action, self._broken)

    def _edited(self, key: str, value: Any, control: object) -> None:
        self._queue(lambda state: _edit(state, key, value, self._variables), control)

    def _queue(self, edit: Edit, source: object = None) -> None:
        self._edits.append((edit, source))
        self.post(self._follow)

    # From here on in the pump's thread.

    def _follow(self) -> None:
        """Follow every edit that waits, and draw once: an earlier call may have followed this one's, too."""
        state, source = self.state, None
        if not self._edits:
            return
        while self._edits:
            edit, source = self._edits.popleft()
            state = edit(state)
        self._go(state, source)

    def _go(self, state: State, source: object = None) -> None:
        if state != self.state:
            self._past = [*self._past, self.state][-_MOST_UNDONE:]
        self.state, self._refused, self._said = state, (), ""
        self._draw(source)

    def _take_back(self) -> None:
        if self._past:
            self.state, self._refused = self._past.pop(), ()
            self._draw()

    def _read(self, pasted: str) -> None:
        try:
            state = text.read(pasted)
        except InvalidRequest as error:
            self._panel.say_of_text(error.faults[0])
            return
        self._go(state, self._panel)
        self._panel.say_of_text(None)

    def _draw(self, source: object = None) -> None:
        """Show the state everywhere but where the last change comes from."""
        judged, offer = self._measures.look(judge(self.state))
        self._rows = data.Rows() if judged.spec is None else self._rows_of(judged.spec, self.state.rows)
        if judged.spec is not None and judged.plan is not None:
            self._look_at_rows(judged.spec)
        self.judged, self._last = judged, judged.plan or self._last
        faults = (*judged.faults, *self._rows.faults, *self._refused)
        # Who has not begun has done nothing wrong.
        self._form.fill(self.state, judged.plan, () if judged.awaits_model else faults, source)
        self._draw_rows()
        self._panel.draw(self.state, judged.plan, self._last)
        self._panel.draw_offer(offer)
        if source is not self._panel:
            self._panel.write(self.state)
        hindrance = "" if not (found := [*faults, *judged.not_here]) else f"To launch: {found[0]}"
        self._panel.draw_foot(
            can_undo=bool(self._past), launching=self._launching, hindrance=hindrance, said=self._said
        )

    def _look_again(self) -> None:
        self._looks.retry()
        self._draw()

    def _look_at_rows(self, spec: JobSpec) -> None:
        name = self.state.rows
        if name in self._variables or spec.dataset.id:
            self._looks.want(spec, self._variables.get(name), closely=self._panel.shows_rows)
        else:
            self._looks.forget(f"There is no variable {name}." if name else "Name rows or a file to see them.")

    def _draw_rows(self) -> None:
        """Show what is seen of the rows: in numbers beside the verdict, and token by token."""
        seen = self._looks.seen
        lengths = None if seen.look is None else seen.look.uncut
        rows = replace(self._rows, lengths=lengths, are_counted=lengths is None and seen.is_looking)
        self._panel.draw_rows(self.judged, rows, seen)

    def _start(self) -> None:
        if self._launching:
            return
        self._launching = True
        # A thread of its own: checking and starting takes seconds, and other jobs are drawn meanwhile.
        threading.Thread(target=self._launch, args=(self.state,), name="veri-launch", daemon=True).start()
        self._draw()

    def _launch(self, state: State) -> None:
        """In that thread: no widget is touched."""
        rows = self._variables[state.rows] if state.rows else None
        try:
            prepared = start.prepare(state.settings, rows, {})
            # A page keeps back what is typed until it is answered what was typed before, and a click overtakes it.
            if self._edits or state != self.state:
                self.post(self._call_off)
                return
            job = start.launch(prepared, quiet=True)
        except VeriError as error:
            self.post(partial(self._failed, error))
        except Exception as error:
            # Whatever it was: nobody sees what this thread prints, and the button says "Starting…".
            _log.exception("the launch from the explorer failed")
            self.post(partial(self._failed, VeriError("internal", in_words(error))))
        else:
            self.post(partial(self._started, job))

    def _failed(self, error: VeriError) -> None:
        self._launching = False
        self._refused = getattr(error, "faults", (Fault("launch", "", error.message, error.hint, error.code),))
        self._draw()

    def _call_off(self) -> None:
        self._launching, self._said = False, _CHANGED
        self._draw()

    def _broken(self, error: Exception) -> None:
        """Stand where the picture would be, until something can be drawn again."""
        self._panel.say_broken(error, self._last)
        self._panel.draw_foot(
            can_undo=bool(self._past), launching=self._launching, hindrance="The plan could not be drawn.", said=""
        )

    def _started(self, job: Job) -> None:
        self._launching = False
        self._on_start(job)
        self._said = f"{job.name} is shown below; anywhere else: %veri_attach {job.id}"
        close_widgets(*self._below.children)
        board = Dashboard(job.entry, self._pump.post)
        self._below.children = (board.widget,)
        self._pump.watch(Watcher(job.entry), {self: board})
        self._draw()


def _edit(state: State, key: str, value: Any, variables: Mapping[str, Any]) -> State:
    """A state after somebody set one thing in the form."""
    if key == LORA:
        return state.with_lora(value)
    if key == "method.type":
        return state.with_method(value)
    if key == "dataset.id":
        if value in variables and data.is_rows(variables[value]):
            return state.with_rows(value)
        return state.with_rows("").set({key: value})
    return state.set({key: value})


def _known_data(variables: Mapping[str, Any]) -> Sequence[str]:
    """What the data may be: variables with rows, and files beside the notebook."""
    files = sorted(path.name for path in Path.cwd().iterdir() if path.name.lower().endswith(SUFFIXES))
    return [*data.names(variables), *(f"./{name}" for name in files[:_MOST_FILES])]


@cache
def _style() -> str:
    css = files("veri_jupyter.explorer").joinpath("explorer.css").read_text(encoding="utf-8")
    return f"<style>{css}</style>"
