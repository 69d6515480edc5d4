"""Small pictures without a script: a curve as inline SVG, or as a line of blocks. Pure."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from veri_jupyter.monitor.chart import BLUE, ORANGE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veri_jupyter.monitor.chart import Line, Panel

_LINE = f"var(--v-line, {BLUE})"  # a dashboard has a lighter one for dark pages
_BLOCKS = "▁▂▃▄▅▆▇█"
_QUIET = "var(--jp-ui-font-color2, var(--vscode-descriptionForeground, #6e7781))"
_INK = "var(--jp-ui-font-color1, var(--vscode-foreground, currentColor))"
_RULE = "var(--jp-border-color2, rgba(127, 127, 127, .35))"


def svg(panel: Panel, *, last_step: float, width: int = 640, height: int = 170) -> str:
    """A panel as a picture that keeps its size from the first step to the last."""
    box = _Box(panel, last_step, width, height)
    said = _said(panel)
    parts = [*box.frame(), *(box.draw(line) for line in panel.lines), *box.labels()]
    return (
        f'<svg role="img" aria-label="{escape(said, quote=True)}" viewBox="0 0 {width} {height}" '
        f'style="display: block; width: 100%; max-width: {width}px; height: auto; '
        'font: 11px var(--jp-ui-font-family, system-ui, sans-serif); font-variant-numeric: tabular-nums">'
        f"{''.join(parts)}</svg>"
    )


def blocks(panel: Panel, width: int = 40) -> str:
    """A panel in one line of text: its smoothed curve, from where to where."""
    line = panel.line("smooth")
    if line is None or line.last is None:
        return f"{panel.title}: no step yet"
    known = line.curve.y[np.isfinite(line.curve.y)].astype(float)
    picked = known[np.linspace(0, len(known) - 1, min(width, len(known))).round().astype(int)]
    low, high = picked.min(), picked.max()
    level = np.zeros(len(picked), int) if high == low else ((picked - low) / (high - low) * 7).round().astype(int)
    return f"{panel.title} {number(known[0])} {''.join(_BLOCKS[each] for each in level)} {number(known[-1])}"


def number(value: float) -> str:
    """A value as it is read: three or four figures."""
    size = abs(value)
    if size and not 1e-3 <= size < 1e5:
        return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e")
    digits = 0 if size >= 100 else 2 if size >= 1 or not size else 3
    return f"{value:,.{digits}f}" if size >= 0.1 or not size else f"{value:.3g}"


def _said(panel: Panel) -> str:
    line = panel.line("smooth")
    return f"{panel.title}: {'no step yet' if line is None or line.last is None else number(line.last)}"


class _Box:
    """Where a value stands in the picture."""

    _LEFT, _RIGHT, _TOP, _BOTTOM = 46, 52, 24, 18

    def __init__(self, panel: Panel, last_step: float, width: int, height: int) -> None:
        self.panel, self.width, self.height = panel, width, height
        found = [line.curve.y for line in panel.lines] + [
            np.array([y for _, y in line.points]) for line in panel.lines
        ]
        known = np.concatenate(found)
        known = known[np.isfinite(known)]
        self.empty = not len(known)
        self.low, self.high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        if self.low == self.high:
            self.low, self.high = self.low - 0.5, self.high + 0.5
        self.last_step = last_step

    def x(self, step: NDArray[np.float64]) -> NDArray[np.float64]:
        inner = self.width - self._LEFT - self._RIGHT
        return self._LEFT + inner * np.clip(step / self.last_step, 0, 1)

    def y(self, value: NDArray[np.floating]) -> NDArray[np.float64]:
        inner = self.height - self._TOP - self._BOTTOM
        return self._TOP + inner * (self.high - value.astype(float)) / (self.high - self.low)

    def frame(self) -> list[str]:
        title = f'<text x="0" y="11" style="fill: {_INK}; font-weight: 600">{escape(self.panel.title)}</text>'
        if self.empty:
            return [title, _quiet(_text(self.width / 2, self.height / 2, "middle", "no step yet"))]
        left, right, bottom = self._LEFT, self.width - self._RIGHT, self.height - self._BOTTOM
        return [
            f'<path d="M{left} {self._TOP}H{right}M{left} {bottom}H{right}" style="stroke: {_RULE}"/>',
            title,
            _quiet(
                _text(left - 6, self._TOP + 4, "end", number(self.high)),
                _text(left - 6, bottom + 4, "end", number(self.low)),
                _text(left, self.height - 4, "start", "step 0"),
                _text(right, self.height - 4, "end", f"{self.last_step:,.0f}"),
            ),
        ]

    def draw(self, line: Line) -> str:
        if line.role == "eval":
            # A stroke without a length and with round ends is a dot: an eighth of a circle's text.
            dots = "".join(f"M{self._at(step, 0)} {self._at(value, 1)}h0" for step, value in line.points)
            style = f"stroke: {ORANGE}; stroke-width: 7; stroke-linecap: round"
            return f'<path d="{dots}" style="{style}"/>' if dots else ""
        style = {"raw": "opacity: .5; stroke-width: 1", "smooth": "stroke-width: 2"}[line.role]
        path = _path(self.x(line.curve.x), self.y(line.curve.y))
        return f'<path d="{path}" style="fill: none; stroke: {_LINE}; {style}"/>' if path else ""

    def labels(self) -> list[str]:
        line = self.panel.line("smooth")
        if line is None or line.last is None:
            return []
        x, y = float(self.x(line.curve.x[-1:])[0]) + 5, float(self._at(line.last, 1)) + 4
        return [f'<text x="{x:.1f}" y="{y:.1f}" style="fill: {_INK}; font-weight: 600">{number(line.last)}</text>']

    def _at(self, value: float, axis: int) -> str:
        found = (self.x, self.y)[axis](np.array([value]))
        return f"{round(float(found[0]), 1):g}"


def _path(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    known = np.isfinite(y)
    pairs = zip(x[known].tolist(), y[known].tolist(), strict=True)
    # Gaps are joined: the steps of somebody's own script may be far apart.
    return "".join(f"{'L' if place else 'M'}{round(a, 1):g} {round(b, 1):g}" for place, (a, b) in enumerate(pairs))


def _quiet(*texts: str) -> str:
    return f'<g style="fill: {_QUIET}">{"".join(texts)}</g>'


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
