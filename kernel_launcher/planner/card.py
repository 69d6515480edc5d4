"""A plan as an HTML card that needs no script: verdict, memory by term as one bar, levers, alternatives, the reasons.

Colours come from the page, through JupyterLab's and VS Code's variables where they exist. What is planned is
outlined, so that it is not taken for something measured; every colour has a word beside it.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from kernel_launcher.planner.verdict import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernel_launcher.planner.alternatives import Alternative
    from kernel_launcher.planner.plan import Plan

# The Okabe-Ito set, which colour-blind readers tell apart.
_BLUE, _ORANGE, _PURPLE, _GREEN, _GREY = "#0072b2", "#e69f00", "#cc79a7", "#009e73", "#7f7f7f"
_COLOURS = {
    "weights": _BLUE, "reference": _BLUE, "cast weights": _BLUE, "gathered weights": _BLUE,
    "gradients": _ORANGE, "reduce buffer": _ORANGE, "DDP buckets": _ORANGE,
    "optimizer": _PURPLE,
    "activations": _GREEN, "working set": _GREEN, "logits and loss": _GREEN,
    "measured": _GREEN,
    "overhead": _GREY,
}  # fmt: skip
_HATCHED = ("gathered weights", "reference", "reduce buffer", "DDP buckets", "working set")
_BADGES = {
    "fits": ("✓", "#0b65c2"), "tight": ("!", "#9a6700"), "does not fit": ("✗", "#c62828"),
    "can't say": ("?", "#59636e"),
}  # fmt: skip
_FONT = "font: 13px/1.5 var(--jp-ui-font-family, system-ui, sans-serif); font-variant-numeric: tabular-nums"
_MONO = "font-family: var(--jp-code-font-family, ui-monospace, monospace); font-size: 12px"
_LINE = "1px solid rgba(127, 127, 127, .35)"
_CELL = "text-align: left; padding: 1px 14px 1px 0"
_MOST_ALTERNATIVES = 3
_SAME = 0.02  # of the width: two marks nearer than this are one, such as those of a processor


def card(plan: Plan) -> str:
    """The card of one plan."""
    style = f"{_FONT}; max-width: 60em; border: {_LINE}; border-radius: 6px; padding: 8px 12px; margin: 4px 0"
    body = [
        _head(plan),
        bar(plan.peak_terms, plan.estimate.budget_bytes, plan.outlook.limit),
        _list("measured", [plan.traced_text] if plan.traced_text else []),
        _list("next", plan.levers_to_tell()),
        _list("", (f"⚠ {warning}" for warning in plan.warnings)),
        f'<pre style="{_MONO}; white-space: pre-wrap; margin: 6px 0">{escape(plan.line)}</pre>',
        _more("how it was decided", _list("", plan.trace)),
        _more("others", _table(plan.alternatives()[:_MOST_ALTERNATIVES])),
        _more("filled in", _list("", map(str, plan.defaults))),
    ]
    label = escape(f"Plan: {plan.peak_text}", quote=True)
    return f'<div role="group" aria-label="{label}" style="{style}">{"".join(body)}</div>'


def _head(plan: Plan) -> str:
    glyph, tone = _BADGES[plan.verdict.fit]
    badge = f"border: 2px solid {tone}; color: {tone}; border-radius: 4px; padding: 0 7px; font-weight: 600"
    where = f"{plan.world_size} x {plan.resources.gpu_type}"
    return (
        f'<div><span style="{badge}">{glyph} {escape(plan.peak_text)}</span> '
        f'<span style="margin-left: .7em">{escape(where)}</span></div>'
    )


def bar(sizes: dict[str, float], budget: int, limit: int) -> str:
    """The terms side by side, with marks at the budget for states and at the memory that a rank finds, in bytes."""
    if not sizes:
        return ""
    whole = 1.04 * max(sum(sizes.values()), limit, budget)
    terms = sorted(sizes.items(), key=lambda item: list(_COLOURS).index(item[0]))
    parts = "".join(_segment(term, size, whole) for term, size in terms)
    marks = _mark("memory", limit, whole, "solid")
    if abs(limit - budget) > _SAME * whole:
        marks += _mark("budget for states", budget, whole, "dashed")
    legend = "".join(
        f"<span>{_swatch(term)} {escape(term)} <strong>{size / GIB:.1f}</strong></span>"
        for term, size in terms
        if size >= 0.05 * GIB
    )
    words = escape(", ".join(f"{term} {size / GIB:.1f} GiB" for term, size in terms), quote=True)
    return (
        f'<div role="img" aria-label="{words}" style="position: relative; height: 30px; margin: 20px 0 6px; '
        f'border-bottom: {_LINE}; display: flex; align-items: stretch">{parts}{marks}</div>'
        f'<div style="display: flex; flex-wrap: wrap; gap: 0 1.4em; white-space: nowrap">{legend}</div>'
    )


def _segment(term: str, size: float, whole: float) -> str:
    tip = escape(f"{term}: {size / GIB:.2f} GiB", quote=True)
    width = f"width: {100 * size / whole:.2f}%"
    return f'<div title="{tip}" style="{width}; box-sizing: border-box; {_fill(term)}"></div>'


def _fill(term: str) -> str:
    colour = _COLOURS[term]
    hatched = f"repeating-linear-gradient(45deg, {colour}66 0 3px, transparent 3px 7px)"
    return f"border: 2px solid {colour}; background: {hatched if term in _HATCHED else f'{colour}40'}"


def _swatch(term: str) -> str:
    square = "display: inline-block; width: 6px; height: 6px"
    return f'<span style="{square}; {_fill(term)}"></span>'


def _mark(name: str, place: int, whole: float, line: str) -> str:
    words = escape(f"{name} {place / GIB:.1f} GiB")
    side = "right: 3px" if place > whole / 2 else "left: 3px"
    return (
        f'<div style="position: absolute; left: {100 * place / whole:.2f}%; top: -6px; bottom: 0; '
        f'border-left: 2px {line} currentColor"><span style="position: absolute; {side}; top: -13px; '
        f'font-size: 11px; white-space: nowrap">{words}</span></div>'
    )


def _list(name: str, lines: Iterable[str]) -> str:
    head = f"<strong>{escape(name)}</strong> " if name else ""
    return "".join(f"<div>{head}{escape(line)}</div>" for line in lines)


def _more(name: str, body: str) -> str:
    return f'<details><summary style="cursor: pointer">{escape(name)}</summary>{body}</details>' if body else ""


def _table(alternatives: list[Alternative]) -> str:
    heads = ("stage", "micro batch", "recompute", "peak", "verdict", "traffic a step")
    rows = ["".join(f'<th scope="col" style="{_CELL}">{head}</th>' for head in heads)]
    for a in alternatives:
        w, needed = a.workload, a.verdict.needed_bytes
        peak = "unknown" if needed is None else f"{needed / GIB:.1f} GiB"
        recompute, sent = "on" if w.recompute else "off", f"{a.traffic_bytes / 1e9:.1f} GB"
        cells = (str(w.zero_stage), str(w.micro_batch_size), recompute, peak, a.verdict.fit, sent)
        rows.append("".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in cells))
    return (
        f'<table style="color: inherit">{"".join(f"<tr>{row}</tr>" for row in rows)}</table>' if alternatives else ""
    )
