"""The live dashboard: widgets that the pump keeps current. Only this file and ``figures`` make widgets."""

from __future__ import annotations

import logging
import threading
import time
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import ipywidgets as widgets

from kernel_launcher.launcher import client
from veri_jupyter.environment import hear_while_busy
from veri_jupyter.monitor import panels, samples, trouble
from veri_jupyter.monitor.chart import axis_end, chart_height, side_panels
from veri_jupyter.monitor.moment import Busy, Moment, Planned
from veri_jupyter.monitor.spark import svg

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel_launcher.protocol.fold import JobView
    from kernel_launcher.protocol.index import Entry
    from veri_jupyter.monitor.figures import LiveChart

_log = logging.getLogger(__name__)

_LOG_LINES = 100
_TABS = ("Samples", "Speed, rate, gradient", "Log", "Plan and measured")
_SAMPLES, _SPEED, _LOG, _PLAN = range(len(_TABS))
_SECONDS_TO_CONFIRM = 5.0
_PANE_SECONDS = 3.0  # a pane is kilobytes, and nobody reads a log line by line as it comes


class Dashboard:
    """One view of a job. Made where it is displayed; from then on drawn in the pump's thread alone.

    Args:
        entry: The job.
        post: Gives the pump something to do.
    """

    def __init__(self, entry: Entry, post: Callable[[Callable[[], None]], None]) -> None:
        self._entry, self._post = entry, post
        self._planned = Planned.of(entry)
        self._busy = Busy(self._planned)
        self._chart: LiveChart | None = None
        self._confirm_until = 0.0
        self._stopping = False
        self._may_turn = True
        self._shown: int | None = None
        self._shown_at = 0.0
        self._make()

    def _make(self) -> None:
        html = widgets.HTML
        self._status, self._heard, self._figures, self._memory, self._caption = (html() for _ in range(5))
        self._stop = widgets.Button(description="Stop", tooltip="Stop the job")
        self._stop.on_click(lambda _: self._post(self._pressed))
        wait = (
            f'<div class="veri-wait" style="height: {chart_height(self._planned.method)}px">drawing the chart…</div>'
        )
        self._place = widgets.Box([html(wait)])
        chart = widgets.VBox([self._caption, self._place])
        middle = widgets.Box([chart, self._memory])
        self._panes = [html() for _ in _TABS]
        self._tabs = widgets.Tab(self._panes, titles=_TABS, selected_index=_SPEED)
        self._tabs.observe(self._turned, "selected_index")
        top = widgets.HBox([self._status, self._stop])
        self.widget = widgets.VBox([html(_style()), self._heard, top, self._figures, middle, self._tabs])
        hear_while_busy(self._stop)
        hear_while_busy(self._tabs)
        for widget, name in (
            (self.widget, "veri"), (top, "veri-top"), (middle, "veri-middle"), (chart, "veri-chart"),
            (self._place, "veri-plot"), (self._memory, "veri-memory"), (self._tabs, "veri-tabs"),
        ):  # fmt: skip
            widget.add_class(name)

    def draw(self, entry: Entry, view: JobView) -> None:
        """Show the job as it is; what has not changed is not sent."""
        if not self._planned.method:
            self._planned = Planned.of(entry)
        moment = Moment.of(entry, view, self._planned, self._busy.share())
        self._status.value = panels.status(moment)
        self._heard.value = panels.heard(moment)
        self._figures.value = panels.figures(moment)
        self._memory.value = panels.memory(moment)
        self._caption.value = panels.caption(moment)
        self._draw_button(moment)
        self._draw_tabs(moment)
        # Last: plotly takes a second to be imported, and the rest need not wait for it.
        self._draw_chart(moment)

    def fail(self, entry: Entry, error: Exception) -> None:
        """Say that it stands still, and why."""
        self._status.value = trouble.html(entry, error)

    def close(self) -> None:
        """Take it off the screen, and out of the kernel."""
        close_widgets(self.widget)

    def _draw_chart(self, moment: Moment) -> None:
        if self._chart is not None:
            self._chart.draw(moment)
            return
        from veri_jupyter.monitor.figures import LiveChart

        self._chart, wait = LiveChart(moment), self._place.children
        self._place.children = (self._chart.figure,)
        close_widgets(*wait)

    def _draw_tabs(self, moment: Moment) -> None:
        if self._may_turn and moment.samples:
            self._tabs.selected_index = _SAMPLES
        over, selected, now = moment.view.status.is_terminal, self._tabs.selected_index, time.monotonic()
        if not over and self._shown == selected and now - self._shown_at < _PANE_SECONDS:
            return
        self._shown, self._shown_at = selected, now
        # The tabs that nobody sees are not sent; at the end all are: from then on nothing is drawn.
        if over or selected == _SAMPLES:
            found = samples.html(moment.samples) or panels.no_samples(moment)
            self._panes[_SAMPLES].value = _pane(found, "samples")
        if over or selected == _SPEED:
            small = "".join(
                svg(panel, last_step=axis_end(moment), width=250, height=92) for panel in side_panels(moment)
            )
            found = f'<div class="veri-smalls">{small}</div>' if small else panels.no_step(moment)
            self._panes[_SPEED].value = _pane(found, "speed, learning rate and gradient")
        if over or selected == _LOG:
            self._panes[_LOG].value = _pane(panels.log(client.log_lines(moment.entry, n=_LOG_LINES)), "log")
        if over or selected == _PLAN:
            self._panes[_PLAN].value = _pane(panels.against_plan(moment), "plan and measured")

    def _turned(self, _: object) -> None:
        """Another tab was chosen, by a person or once by the first answers: from then on a person alone chooses."""
        self._may_turn = False
        self._post(lambda: None)

    def _draw_button(self, moment: Moment) -> None:
        over = moment.view.status.is_terminal
        asked = time.monotonic() < self._confirm_until
        self._stop.disabled = over or self._stopping or moment.summary.stopping
        self._stop.button_style = "danger" if asked and not over else ""
        self._stop.description = (
            "Stop" if over else "Stopping…" if self._stop.disabled else "Really stop?" if asked else "Stop"
        )

    def _pressed(self) -> None:
        """The first click asks, a second one within a few seconds stops: hours of training are one click away."""
        if time.monotonic() > self._confirm_until:
            self._confirm_until = time.monotonic() + _SECONDS_TO_CONFIRM
            return
        self._stopping, self._confirm_until = True, 0.0
        # A thread of its own: it waits until the job has ended, and ends by force what does not answer.
        threading.Thread(target=self._end, name="veri-stop", daemon=True).start()

    def _end(self) -> None:
        try:
            client.stop(self._entry)
        except Exception:
            # Whatever it was: the view shows that the job goes on, and its button can be pressed again.
            _log.exception("%s could not be stopped", self._entry.id)
        self._stopping = False


def close_widgets(*closed: widgets.Widget) -> None:
    """Take widgets and all that is in them out of the kernel."""
    for widget in closed:
        close_widgets(*getattr(widget, "children", ()))
        for part in (getattr(widget, "style", None), getattr(widget, "layout", None), widget):
            if isinstance(part, widgets.Widget):
                part.close()


def _pane(html: str, label: str) -> str:
    return f'<div class="veri-pane" role="region" tabindex="0" aria-label="{label}">{html}</div>'


@cache
def _style() -> str:
    css = files("veri_jupyter.monitor").joinpath("dashboard.css").read_text(encoding="utf-8")
    return f"<style>{css}</style>"
