"""Pictures that need no script: a summary as HTML and text, readable in a saved notebook and on any theme.

Colours come from the page, through JupyterLab's and VS Code's variables where they exist; the status badge brings
its own, white on a tone that is dark enough for it (contrast above 4.5). Without any style the text still reads.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from kernel_launcher.protocol.states import Status
from veri_jupyter.environment import has_widgets
from veri_jupyter.monitor.chart import axis_end, main_panels
from veri_jupyter.monitor.series import MOST_POINTS
from veri_jupyter.monitor.spark import blocks, svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernel_launcher.protocol.summary import Summary
    from veri_jupyter.monitor.moment import Moment

_TONES = {Status.COMPLETED: "#1a7f37", Status.FAILED: "#c62828", Status.CANCELLED: "#59636e"}
_BUSY = "#0b65c2"
_POINTS_IN_FOOT = 150  # it is sent again and again, and seldom opened

_QUIET = "color: var(--jp-ui-font-color2, var(--vscode-descriptionForeground, inherit))"
_MONO = "font-family: var(--jp-code-font-family, ui-monospace, monospace)"
_LINE = "1px solid rgba(127, 127, 127, .35)"
CELL = "text-align: left; vertical-align: top; padding: 2px 14px 2px 0; white-space: nowrap"
FONT = "font: 13px/1.5 var(--jp-ui-font-family, system-ui, sans-serif); font-variant-numeric: tabular-nums"


def bundle(moment: Moment) -> dict[str, Any]:
    """The summary for every reader: HTML, and text for those that show none."""
    return {"text/plain": moment.summary.text(), "text/html": card(moment.summary)}


def chart(moment: Moment) -> dict[str, Any]:
    """The chart for every reader: a picture and a line of blocks while it runs, plotly's figure at the end."""
    found: dict[str, Any] = dict(_pictures(moment, MOST_POINTS))
    if moment.view.status.is_terminal and moment.view.steps and has_widgets():
        from veri_jupyter.monitor.figures import mime

        found |= mime(moment)
    return found


def foot(moment: Moment) -> dict[str, Any]:
    """What is below a dashboard: a line, when it was true and how to go on; opened, the whole summary."""
    summary, pictures = moment.summary, _pictures(moment, _POINTS_IN_FOOT)
    said = f"{summary.glyph} {summary.word} {summary.name} · {summary.seen} · {summary.again}: "
    html = (
        f'<details style="{FONT}; {_QUIET}"><summary style="cursor: pointer">{escape(said)}'
        f'<code style="white-space: nowrap">{escape(summary.attach)}</code></summary>{card(summary)}'
        f"{pictures['text/html']}</details>"
    )
    return {"text/plain": f"{summary.text()}\n{pictures['text/plain']}", "text/html": html}


def card(summary: Summary) -> str:
    """One job as an HTML card."""
    body = "".join(
        [
            _head(summary),
            _bar(summary),
            _figures(summary),
            *(f'<div style="margin-top: 4px">{escape(remark)}</div>' for remark in summary.remarks),
            _log(summary),
            _foot(summary),
        ]
    )
    label = escape(f"Job {summary.name}: {summary.word}", quote=True)
    style = f"{FONT}; max-width: 54em; border: {_LINE}; border-radius: 6px; padding: 8px 12px; margin: 4px 0"
    return f'<div role="group" aria-label="{label}" style="{style}">{body}</div>'


def table(summaries: Sequence[Summary]) -> str:
    """Several jobs as an HTML table, a row each."""
    heads = "".join(f'<th scope="col" style="{CELL}">{head}</th>' for head in ("status", "job", "progress", "loss"))
    rows = "".join(map(_row, summaries))
    return f'<table style="{FONT}; color: inherit"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'


def _pictures(moment: Moment, most: int) -> dict[str, str]:
    panels, end = main_panels(moment, most), axis_end(moment)
    return {
        "text/plain": "\n".join(map(blocks, panels)),
        "text/html": "".join(f"<div>{svg(panel, last_step=end)}</div>" for panel in panels),
    }


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts whose first column says what a row is."""
    heads = "".join(f'<th scope="col" style="{CELL}">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row" style="{CELL}">{escape(name)}</th>'
        + "".join(f'<td style="{CELL}; white-space: normal">{escape(cell)}</td>' for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return f'<table style="{FONT}; color: inherit"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'


def _row(summary: Summary) -> str:
    loss = dict(summary.figures).get("loss", "")
    progress = f'<span style="white-space: normal">{escape(summary.progress)}</span>'
    cells = (_badge(summary), f"<code>{escape(summary.id)}</code>", progress, escape(loss))
    return "<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells) + "</tr>"


def _head(summary: Summary) -> str:
    name = f'<strong style="margin: 0 .7em">{escape(summary.name)}</strong>'
    return f"<div>{_badge(summary)}{name}<span>{escape(summary.progress)}</span></div>"


def _badge(summary: Summary) -> str:
    style = (
        f"background: {_TONES.get(summary.status, _BUSY)}; color: #fff; border-radius: 4px; padding: 1px 7px; "
        "white-space: nowrap"
    )
    return f'<span style="{style}">{summary.glyph} {escape(summary.word)}</span>'


def _bar(summary: Summary) -> str:
    percent = round(100 * summary.share)
    tone = _TONES.get(summary.status, _BUSY)
    return (
        f'<div role="progressbar" aria-valuenow="{percent}" aria-valuemin="0" aria-valuemax="100" aria-label="steps" '
        'style="height: 5px; margin: 7px 0; border-radius: 3px; background: rgba(127, 127, 127, .25)">'
        f'<div style="height: 5px; width: {percent}%; border-radius: 3px; background: {tone}"></div></div>'
    )


def _figures(summary: Summary) -> str:
    cells = "".join(
        f'<span style="display: inline-block; margin-right: 1.8em"><span style="{_QUIET}">{label}</span> '
        f"<strong>{escape(value)}</strong></span>"
        for label, value in summary.figures
    )
    return f"<div>{cells}</div>" if cells else ""


def _log(summary: Summary) -> str:
    if not summary.log_tail:
        return ""
    lines = escape("\n".join(summary.log_tail))
    edge = f"border-left: 3px solid {_TONES[Status.FAILED]}"
    style = f"{_MONO}; font-size: 12px; {edge}; padding: 2px 0 2px 10px; margin: 7px 0; overflow-x: auto"
    return f'<pre style="{style}">{lines}</pre>'


def _foot(summary: Summary) -> str:
    label, path = summary.place
    again = f'<code style="white-space: nowrap">{escape(summary.attach)}</code>'
    return (
        f'<div style="{_QUIET}; margin-top: 4px">{label} <code>{escape(path)}</code></div>'
        f'<div style="{_QUIET}">{summary.seen} · {summary.again}: {again}</div>'
    )
