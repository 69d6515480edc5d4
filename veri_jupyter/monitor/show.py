"""Puts a job on screen: a dashboard, a summary that keeps itself current, or in a terminal a few lines of text."""

from __future__ import annotations

import shutil
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_launcher.errors import VeriError
from kernel_launcher.launcher.client import Watcher
from kernel_launcher.launcher.client import follow as follow_to_end
from kernel_launcher.protocol.summary import Summary
from veri_jupyter.environment import Frontend, cell_run, frontend, has_live_widgets, has_widgets
from veri_jupyter.monitor import static, trouble
from veri_jupyter.monitor.moment import Moment, Planned
from veri_jupyter.monitor.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kernel_launcher.planner import Plan
    from kernel_launcher.protocol.fold import JobView
    from kernel_launcher.protocol.index import Entry

_CLEAR_LINE = "\r\x1b[2K"
_FOOT_SECONDS = 10.0


def summarise(entry: Entry, view: JobView) -> Summary:
    """The job as of now."""
    return Summary.of(entry, view, datetime.now(UTC).astimezone())


def say(lines: Iterable[str]) -> None:
    """Print lines where the cell's output goes."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def tell(lines: Iterable[str]) -> None:
    """Say something in a cell or a terminal's IPython; a script asked for no words."""
    if frontend() is not Frontend.SCRIPT:
        say(lines)


def show(entry: Entry, display: str = "auto") -> None:
    """Show a job; in a notebook it stays current until the job ends, wherever it is shown.

    Args:
        entry: The job.
        display: ``widget`` is the dashboard, ``static`` a summary and a chart that need no script; ``auto`` is the
            dashboard where somebody is known to look at it.

    Raises:
        VeriError: The packages of the dashboard are missing.
    """
    watcher = Watcher(entry)
    view = watcher.refresh()
    if not frontend().is_kernel:
        say([summarise(entry, view).text()])
    elif display == "widget" or (display == "auto" and has_live_widgets()):
        _show_dashboard(watcher, view)
    else:
        _show_static(watcher, view)


def _show_static(watcher: Watcher, view: JobView) -> None:
    entry = watcher.entry
    # One display id a job: whichever cells show it, one update reaches them all.
    pictures: list[Displayed] = [Displayed(entry.id, static.bundle), Displayed(f"{entry.id}-chart", static.chart)]
    for picture in pictures:
        picture.begin(entry, view)
    if not view.status.is_terminal:
        pump.watch(watcher, {picture.display_id: picture for picture in pictures})


def _show_dashboard(watcher: Watcher, view: JobView) -> None:
    need_widgets("The dashboard")
    from IPython.display import display

    from veri_jupyter.monitor.dashboard import Dashboard

    entry = watcher.entry
    board = Dashboard(entry, pump.post)
    display(board.widget)
    # What stays of it in the saved notebook, and after a restart of the kernel.
    foot = Displayed(f"{entry.id}-foot", static.foot, seconds=_FOOT_SECONDS)
    foot.begin(entry, view)
    here = _Place(*cell_run(), board)
    pump.watch(watcher, {here: board, foot.display_id: foot}, here.replaces)


def need_widgets(what: str) -> None:
    """Refuse what cannot be drawn.

    Raises:
        VeriError: The packages are missing.
    """
    if not has_widgets():
        hint = "pip install 'veri-jupyter[notebook]', or show the job with --display static."
        raise VeriError("missing_package", f"{what} needs ipywidgets, anywidget and plotly.", hint)


def show_plan(plan: Plan) -> None:
    """Show a plan: in a notebook as a card, in a terminal as lines."""
    if frontend().is_kernel:
        display_bundle({"text/plain": str(plan), "text/html": plan.html()})
    else:
        say(plan.describe())


def show_all(summaries: Sequence[Summary]) -> None:
    """Show several jobs, a line each."""
    text = "\n".join(f"{summary.line()}  {summary.id}" for summary in summaries) or "No jobs yet."
    if frontend().is_kernel and summaries:
        display_bundle({"text/plain": text, "text/html": static.table(summaries)})
    else:
        say([text])


def follow(entry: Entry, timeout: float | None, *, quiet: bool = False) -> JobView:
    """Wait for the end of a job: in a terminal on one line, in a notebook while its summary is kept current.

    Raises:
        TimeoutError: It has not ended; it goes on.
    """
    view = Watcher(entry).refresh()
    if not view.status.is_terminal:
        where = Frontend.SCRIPT if quiet else frontend()
        view = _in_terminal(entry, timeout) if where is Frontend.TERMINAL else _beside_summary(entry, timeout, where)
    pump.settle(entry.id)
    return view


def _in_terminal(entry: Entry, timeout: float | None) -> JobView:
    try:
        view = follow_to_end(entry, lambda view: _one_line(entry, view), timeout=timeout)
    finally:
        sys.stdout.write(_CLEAR_LINE)
    say([summarise(entry, view).text()])
    return view


def _beside_summary(entry: Entry, timeout: float | None, where: Frontend) -> JobView:
    if where is Frontend.NOTEBOOK:
        say([f"Waiting for {entry.name}; interrupting the cell leaves the job running."])
    if where.is_kernel and not pump.watches(entry.id):
        show(entry)
    return follow_to_end(entry, lambda _: None, timeout=timeout)


def _one_line(entry: Entry, view: JobView) -> None:
    width = shutil.get_terminal_size().columns - 1
    sys.stdout.write(_CLEAR_LINE + summarise(entry, view).line()[:width])
    sys.stdout.flush()


class _Place(NamedTuple):
    """Where a dashboard is: in two cells, or twice in one run of a cell, there are two; a new run clears its cell."""

    cell: str
    run: str
    board: object

    def replaces(self, other: object) -> bool:
        return isinstance(other, _Place) and self.cell == other.cell != "" and self.run != other.run


class Displayed:
    """Something that is not a widget and can be shown anew: JupyterLab and nbconvert know it by its display id.

    Args:
        display_id: Its name on the page.
        bundle: What it shows, by type.
        seconds: From one change to the next at least, while the state stays the same.
    """

    def __init__(self, display_id: str, bundle: Callable[[Moment], dict[str, Any]], seconds: float = 0.0) -> None:
        self.display_id = display_id
        self._bundle = bundle
        self._seconds = seconds
        self._shown: tuple[str, float] = ("", 0.0)
        self._last: dict[str, Any] = {}

    def begin(self, entry: Entry, view: JobView) -> None:
        """Show it in the cell that runs."""
        self._publish(entry, view, update=False)

    def draw(self, entry: Entry, view: JobView) -> None:
        """Show it anew wherever it was shown."""
        word, at = self._shown
        if word != view.status or time.monotonic() - at >= self._seconds:
            self._publish(entry, view, update=True)

    def fail(self, entry: Entry, error: Exception) -> None:
        """Say below what was shown last that it stands still, and why."""
        said = {"text/plain": f"\n{trouble.text(entry, error)}", "text/html": trouble.html(entry, error)}
        bundle = {kind: self._last.get(kind, "") + more for kind, more in said.items()}
        display_bundle(bundle, display_id=self.display_id, update=True)

    def close(self) -> None:
        """Whatever takes its place has the same display id."""

    def _publish(self, entry: Entry, view: JobView, *, update: bool) -> None:
        bundle = self._bundle(Moment.of(entry, view, Planned.of(entry)))
        self._shown = str(view.status), time.monotonic()
        if bundle != self._last:
            display_bundle(bundle, display_id=self.display_id, update=update)
        self._last = bundle


def display_bundle(data: dict[str, Any], **options: Any) -> None:
    """Show one thing in each of these types."""
    from IPython.display import display

    display(data, raw=True, **options)


pump = Pump()
