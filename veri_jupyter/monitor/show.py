"""Puts a job on screen: in a notebook a summary that keeps itself current, in a terminal a few lines of text."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kernel_launcher.launcher.client import Watcher
from kernel_launcher.launcher.client import follow as follow_to_end
from kernel_launcher.protocol.summary import Summary
from veri_jupyter.environment import Frontend, frontend
from veri_jupyter.monitor import static
from veri_jupyter.monitor.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernel_launcher.planner import Plan
    from kernel_launcher.protocol.fold import JobView
    from kernel_launcher.protocol.index import Entry

_CLEAR_LINE = "\r\x1b[2K"


def summarise(entry: Entry, view: JobView) -> Summary:
    """The job as of now."""
    return Summary.of(entry, view, datetime.now(UTC).astimezone())


def say(lines: Iterable[str]) -> None:
    """Print lines where the cell's output goes."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def show(entry: Entry) -> None:
    """Show a job; in a notebook its summary stays current until the job ends, wherever it is shown."""
    watcher = Watcher(entry)
    view = watcher.refresh()
    if not frontend().is_kernel:
        say([summarise(entry, view).text()])
        return
    _publish(entry, view, update=False)
    if not view.status.is_terminal:
        pump.watch(watcher)


def show_plan(plan: Plan) -> None:
    """Show a plan: in a notebook as a card, in a terminal as lines."""
    if frontend().is_kernel:
        _display({"text/plain": str(plan), "text/html": plan.html()})
    else:
        say(plan.describe())


def show_all(summaries: Sequence[Summary]) -> None:
    """Show several jobs, a line each."""
    text = "\n".join(f"{summary.line()}  {summary.id}" for summary in summaries) or "No jobs yet."
    if frontend().is_kernel and summaries:
        _display({"text/plain": text, "text/html": static.table(summaries)})
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


def _publish(entry: Entry, view: JobView, *, update: bool = True) -> None:
    # One display id a job: whichever cells show it, one update reaches them all.
    _display(static.bundle(summarise(entry, view)), display_id=entry.id, update=update)


def _display(data: dict[str, str], **options: Any) -> None:
    from IPython.display import display

    display(data, raw=True, **options)


pump = Pump(_publish)
