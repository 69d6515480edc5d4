"""Charts in plotly: the live one of a view, and those for a paper. Only this file imports plotly."""

from __future__ import annotations

import json
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from plotly.serializers import custom_serializers
from traitlets import Dict

from veri_jupyter.monitor.chart import BLUE, COLOURS, ORANGE, axis_end, chart_height, epoch_marks, main_panels
from veri_jupyter.monitor.series import MOST_POINTS
from veri_jupyter.monitor.spark import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from veri_jupyter.monitor.chart import Line, Panel
    from veri_jupyter.monitor.moment import Moment

_GAP = 0.07
_DASHES = ("solid", "dash", "dot")
_ON_PAPER: dict[str, Any] = {
    "template": "simple_white",
    "font": {"size": 14},
    "margin": {"l": 64, "r": 56, "t": 40, "b": 52},
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
}
_CLEAR, _GREY = "rgba(0, 0, 0, 0)", "#7a7f87"  # the grey reads on white and on black
_RULE = "rgba(127, 127, 127, .35)"
_STYLES: dict[str, dict[str, Any]] = {
    "raw": {"mode": "lines", "line": {"color": BLUE, "width": 1}, "opacity": 0.45, "connectgaps": True},
    "smooth": {"mode": "lines", "line": {"color": BLUE, "width": 2.5}, "connectgaps": True},
    "eval": {"mode": "markers", "marker": {"color": ORANGE, "size": 8}},
    "now": {"mode": "text", "textposition": "middle right"},
}


def paper(moment: Moment, most: int) -> go.Figure:
    """The panels of a job on white, with a legend and titled axes."""
    panels = main_panels(moment, most)
    figure = go.Figure(data=list(_traces(panels)), layout=_layout(panels))
    figure.update_layout(height=380 if len(panels) == 1 else 620, **_ON_PAPER)
    figure.update_layout(xaxis_title="optimizer step", yaxis_title=panels[0].title)
    _draw(figure, panels, moment)
    for trace in figure.data:
        trace.showlegend = trace.yaxis == "y" and trace.name != "" and trace.y is not None and len(trace.y) > 0
    return figure


def losses(panels: Mapping[str, Panel]) -> go.Figure:
    """The losses of several jobs, by name: smoothed, evaluations as dots."""
    figure = go.Figure()
    for place, (name, panel) in enumerate(panels.items()):
        round_, colour = divmod(place, len(COLOURS))
        # plotly reads tags, and of the entities of HTML neither &quot; nor &apos;.
        shared = {"name": escape(name, quote=False), "legendgroup": str(place)}
        for line in panel.lines:
            if line.role == "raw" or line.last is None:
                continue
            trace = go.Scatter({**_STYLES[line.role], **shared}, showlegend=line.role == "smooth")
            trace.line.update(color=COLOURS[colour], dash=_DASHES[round_ % len(_DASHES)])
            trace.marker.color = COLOURS[colour]
            _set(trace, line)
            figure.add_trace(trace)
    figure.update_layout(height=380, xaxis_title="optimizer step", yaxis_title="loss", **_ON_PAPER)
    return figure


def mime(moment: Moment) -> dict[str, Any]:
    """The figure of a job as ``as_mime`` gives it."""
    return as_mime(paper(moment, MOST_POINTS))


def as_mime(figure: go.Figure) -> dict[str, Any]:
    """A figure for frontends that draw plotly's own type (JupyterLab, VS Code, Colab)."""
    figure = go.Figure(figure)
    figure.update_layout(template=None, paper_bgcolor=_CLEAR, plot_bgcolor=_CLEAR, font_color=_GREY)
    figure.update_xaxes(showgrid=False, linecolor=_GREY, zeroline=False)
    figure.update_yaxes(gridcolor=_RULE, zeroline=False)
    return {"application/vnd.plotly.v1+json": {**json.loads(figure.to_json()), "config": {"displaylogo": False}}}


class _Figure(go.FigureWidget):
    """A figure that one thread alone writes: what browsers report back changes nothing here.

    plotly's own handlers would run in whichever thread the message comes to, and answer each update with another.
    """

    # Without the echo: every trace's defaults, five kilobytes after each update.
    _js2py_traceDeltas = Dict(allow_none=True).tag(sync=True, echo_update=False, **custom_serializers)  # noqa: N815

    def _ignore(self, _: object) -> None:
        """A zoom in one view is that view's."""

    _handler_js2py_traceDeltas = _handler_js2py_layoutDelta = _ignore  # noqa: N815 -- plotly's names
    _handler_js2py_restyle = _handler_js2py_relayout = _handler_js2py_update = _ignore
    _handler_js2py_pointsCallback = _ignore  # noqa: N815

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """What a page that is loaded anew is given: the figure as it is now, not as it was made."""
        state: dict[str, Any] = super().get_state(key, drop_defaults)
        if key is None and "_data" in vars(self):  # not while it is being made
            fresh = {"_widget_data": self._data, "_widget_layout": self._layout}
            state |= {name: self.trait_metadata(name, "to_json")(value, self) for name, value in fresh.items()}
        return state


class LiveChart:
    """The chart of one view; draw it in the thread that made it."""

    def __init__(self, moment: Moment) -> None:
        panels = main_panels(moment)
        layout = _layout(panels) | {
            "height": chart_height(moment.planned.method),
            "margin": {"l": 44, "r": 44, "t": 6, "b": 22},
            "paper_bgcolor": _CLEAR,
            "plot_bgcolor": _CLEAR,
            "autosize": True,
            "showlegend": False,
            "hovermode": "x unified",
            "uirevision": "kept",
        }
        self.figure = _Figure(data=list(_traces(panels)), layout=layout)
        self.figure._config = {"displaylogo": False, "displayModeBar": False, "responsive": True}  # noqa: SLF001
        self.draw(moment)

    def draw(self, moment: Moment) -> None:
        """Send what has changed, in one update."""
        with self.figure.batch_update():
            _draw(self.figure, main_panels(moment), moment)


def _traces(panels: Sequence[Panel]) -> chain[go.Scatter]:
    return chain.from_iterable(_of_panel(panel, place) for place, panel in enumerate(panels))


def _of_panel(panel: Panel, place: int) -> list[go.Scatter]:
    axis = {"yaxis": "y" if place == 0 else f"y{place + 1}", "xaxis": "x"}
    found = [go.Scatter(name=line.name, **axis, **_STYLES[line.role]) for line in panel.lines]
    return [*found, go.Scatter(name="", hoverinfo="skip", cliponaxis=False, **axis, **_STYLES["now"])]


def _draw(figure: go.Figure, panels: Sequence[Panel], moment: Moment) -> None:
    traces = iter(figure.data)
    for panel in panels:
        for line in panel.lines:
            _set(next(traces), line)
        _set_end(next(traces), panel.line("smooth"))
    end = axis_end(moment)
    figure.layout.xaxis.range = [0, end]
    marks = [
        {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 1, "dash": "dot",
         "color": _RULE}}
        for at in epoch_marks(moment) if at < end
    ]  # fmt: skip
    if len(marks) != len(figure.layout.shapes):
        figure.layout.shapes = marks


def _set(trace: go.Scatter, line: Line) -> None:
    if line.role == "eval":
        trace.x = np.array([step for step, _ in line.points], np.float32)
        trace.y = np.array([value for _, value in line.points], np.float32)
    else:
        trace.x0, trace.dx, trace.y = line.curve.x0, line.curve.dx, line.curve.y


def _set_end(trace: go.Scatter, line: Line | None) -> None:
    if line is not None and line.last is not None:
        trace.x, trace.y, trace.text = [float(line.curve.x[-1])], [line.last], [f" {number(line.last)}"]


def _layout(panels: Sequence[Panel]) -> dict[str, Any]:
    """Panels above each other over one axis of steps, the first the highest."""
    axis = {"showgrid": True, "gridcolor": _RULE, "zeroline": False, "automargin": False, "fixedrange": False}
    layout: dict[str, Any] = {"xaxis": {**axis, "showgrid": False, "anchor": f"y{len(panels)}".removesuffix("1")}}
    for place, (low, high) in enumerate(_domains(len(panels))):
        name = "yaxis" if place == 0 else f"yaxis{place + 1}"
        title = {"text": panels[place].title, "standoff": 4} if len(panels) > 1 else None
        layout[name] = {**axis, "domain": [low, high], "title": title, "nticks": 6 if place == 0 else 4}
    return layout


def _domains(count: int) -> list[tuple[float, float]]:
    if count == 1:
        return [(0.0, 1.0)]
    first = 0.46
    rest = (1 - first - _GAP * (count - 1)) / (count - 1)
    tops = [1 - first - _GAP - place * (rest + _GAP) for place in range(count - 1)]
    return [(1 - first, 1.0), *((top - rest, top) for top in tops)]
