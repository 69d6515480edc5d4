"""Long columns as curves of a bounded number of points. Pure.

A curve lies on an even grid of steps, so that a chart which is kept current sends its values alone: where the grid
starts and how wide it is changes only when the width doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MOST_POINTS = 500
LEAST_POINTS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Values on an even grid: the point ``i`` is at ``x0 + i * dx``; NaN where there is none."""

    x0: float
    dx: float
    y: NDArray[np.float32]

    @property
    def x(self) -> NDArray[np.float64]:
        return self.x0 + self.dx * np.arange(len(self.y), dtype=np.float64)


NOTHING = Curve(0.0, 1.0, np.empty(0, np.float32))


def envelope(steps: Sequence[int], values: Sequence[float], most: int = MOST_POINTS) -> Curve:
    """The lowest and the highest value of each stretch, in the order in which they look right.

    The first, the last, the lowest and the highest value of all are always among the points, each at most one stretch
    away from its step.

    Args:
        steps: In any order; of two values for one step (a run that went back) the later counts.
        values: As many as steps; NaN where one is missing.
        most: Points at most.
    """
    x, y = _in_order(steps, values)
    if not len(x):
        return NOTHING
    width = _width(int(x[-1] - x[0]), most)
    if width == 1:
        row = np.full(int(x[-1] - x[0]) + 1, np.nan, np.float32)
        row[x - x[0]] = y
        return Curve(float(x[0]), 1.0, row)
    stretch, starts = _stretches(x, width)
    low, high = np.fmin.reduceat(y, starts), np.fmax.reduceat(y, starts)
    ends = np.append(starts[1:], len(x)) - 1
    falls = y[starts] > y[ends]
    row = np.full(2 * int(stretch[-1]) + 4, np.nan, np.float32)
    row[0] = y[0]
    row[2 * stretch + 1] = np.where(falls, high, low)
    row[2 * stretch + 2] = np.where(falls, low, high)
    row[-1] = y[-1]
    return Curve(float(x[0]) - width / 2, width / 2, row)


def smooth(steps: Sequence[int], values: Sequence[float], span: float, most: int = MOST_POINTS) -> Curve:
    """The exponential mean of the past, over about ``span`` steps, of the mean of each stretch.

    Arguments are those of ``envelope``; values that are not finite are left out.
    """
    x, y = _in_order(steps, values)
    known = np.isfinite(y)
    if not known.any():
        return NOTHING
    width = _width(int(x[-1] - x[0]), most)
    first, x, y = x[0], x[known], y[known]
    stretch, starts = _stretches(x, width, first)
    means = np.add.reduceat(y, starts) / np.diff(np.append(starts, len(x)))
    row = np.full(int(stretch[-1]) + 1, np.nan, np.float32)
    row[stretch] = _exponential(means, np.diff(stretch, prepend=stretch[0]) * width, span)
    return Curve(float(first) + (width - 1) / 2, float(width), row)


def _in_order(steps: Sequence[int], values: Sequence[float]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    # Copies: a column that is shared with numpy could not grow any more.
    x, y = np.array(steps, np.int64), np.array(values, np.float64)
    if len(x) > 1 and (np.diff(x) <= 0).any():
        x, last = np.unique(x[::-1], return_index=True)
        y = y[::-1][last]
    return x, y


def _width(distance: int, most: int) -> int:
    """Steps of a stretch: a power of two, so that it seldom changes; the first and the last value come on top."""
    if distance < most:
        return 1
    width = 2
    while 2 * (distance // width + 1) + 2 > most:
        width *= 2
    return width


def _stretches(
    x: NDArray[np.int64], width: int, first: np.int64 | None = None
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """The number of each stretch that has a value, and where in ``x`` it starts."""
    stretch = (x - (x[0] if first is None else first)) // width
    starts = np.flatnonzero(np.diff(stretch, prepend=-1))
    return stretch[starts], starts


def _exponential(means: NDArray[np.float64], gaps: NDArray[np.int64], span: float) -> list[float]:
    total = weight = 0.0
    found = []
    for mean, keep in zip(means.tolist(), np.exp(-gaps / span).tolist(), strict=True):
        total, weight = total * keep + mean, weight * keep + 1.0
        found.append(total / weight)
    return found
