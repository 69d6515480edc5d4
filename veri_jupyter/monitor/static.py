"""Pictures that need no script: a summary as HTML and text, readable in a saved notebook and on any theme.

Colours come from the page, through JupyterLab's and VS Code's variables where they exist; the status badge brings
its own, white on a tone that is dark enough for it (contrast above 4.5). Without any style the text still reads.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from kernel_launcher.protocol.states import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel_launcher.protocol.summary import Summary

_TONES = {Status.COMPLETED: "#1a7f37", Status.FAILED: "#c62828", Status.CANCELLED: "#59636e"}
_BUSY = "#0b65c2"

_QUIET = "color: var(--jp-ui-font-color2, var(--vscode-descriptionForeground, inherit))"
_MONO = "font-family: var(--jp-code-font-family, ui-monospace, monospace)"
_LINE = "1px solid rgba(127, 127, 127, .35)"
CELL = "text-align: left; vertical-align: top; padding: 2px 14px 2px 0; white-space: nowrap"
FONT = "font: 13px/1.5 var(--jp-ui-font-family, system-ui, sans-serif); font-variant-numeric: tabular-nums"


def bundle(summary: Summary) -> dict[str, str]:
    """The summary for every reader: HTML, and text for those that show none."""
    return {"text/plain": summary.text(), "text/html": card(summary)}


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
