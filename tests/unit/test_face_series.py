"""Curves of a bounded number of points that hide nothing."""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from veri_jupyter.monitor.series import MOST_POINTS, NOTHING, envelope, smooth

values = st.floats(-1e6, 1e6, width=32) | st.just(float("nan"))


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    """Steps that rise, with gaps, and a value for each; long ones by repetition."""
    gaps = draw(st.lists(st.integers(1, 40), min_size=1, max_size=60)) * draw(st.integers(1, 60))
    steps = (draw(st.integers(0, 1000)) + np.cumsum(gaps)).tolist()
    row = draw(st.lists(values, min_size=1, max_size=60))
    return steps, [row[place % len(row)] for place in range(len(steps))]


@given(columns(), st.integers(10, MOST_POINTS))
@example((list(range(1, 502)), [float(step) for step in range(501)]), MOST_POINTS)
def test_an_envelope_is_bounded_and_keeps_what_matters(column: tuple[list[int], list[float]], most: int) -> None:
    """At most so many points; the ends, the lowest and the highest value are there, near their steps."""
    steps, row = column
    curve = envelope(steps, row, most)
    assert len(curve.y) <= most
    drawn = np.array(curve.y, float)
    known = np.isfinite(row)
    np.testing.assert_equal(np.array([row[0], row[-1]], np.float32), curve.y[[0, -1]])
    if known.any():
        assert (np.nanmin(row), np.nanmax(row)) == (np.nanmin(drawn), np.nanmax(drawn))
    for x, y in zip(curve.x, drawn, strict=True):
        if np.isfinite(y):
            near = [value for step, value in zip(steps, row, strict=True) if abs(step - x) <= 2 * curve.dx]
            assert y in near


@given(columns())
def test_a_smooth_curve_stays_within_its_values(column: tuple[list[int], list[float]]) -> None:
    """A mean is never above the highest nor below the lowest value."""
    steps, row = column
    curve = smooth(steps, row, span=20)
    assert len(curve.y) <= MOST_POINTS
    if np.isfinite(row).any():
        drawn = curve.y[np.isfinite(curve.y)]
        margin = 1e-3 + 1e-6 * np.nanmax(np.abs(row))
        assert np.nanmin(row) - margin <= drawn.min()
        assert drawn.max() <= np.nanmax(row) + margin


@given(st.integers(2, 3000))
def test_the_grid_changes_only_when_its_width_doubles(total: int) -> None:
    """A run that goes on moves no point sideways, but at a doubling."""
    lengths = range(1, total + 1, max(1, total // 50))
    grids = [(curve.x0, curve.dx) for n in lengths for curve in [envelope(range(n), [0.0] * n)]]
    assert len(set(grids)) <= 1 + np.log2(max(grids[-1][1], 0.5) * 2)
    assert all(before <= later for (_, before), (_, later) in pairwise(grids))


def test_short_runs_are_shown_as_they_are() -> None:
    """Up to the limit every point is its step, and a missing one a gap."""
    curve = envelope(array("q", [3, 4, 6]), array("d", [1.0, 2.0, 3.0]))
    assert [3.0, 4.0, 5.0, 6.0] == curve.x.tolist()
    np.testing.assert_equal(np.array([1, 2, np.nan, 3], np.float32), curve.y)


def test_a_run_that_went_back() -> None:
    """After a restart from a checkpoint the later value of a step counts."""
    curve = envelope([1, 2, 3, 2, 3, 4], [9.0, 8.0, 7.0, 5.0, 4.0, 3.0])
    assert [9.0, 5.0, 4.0, 3.0] == curve.y.tolist()


def test_nothing() -> None:
    """No step, or no value that is finite."""
    assert NOTHING is envelope([], [])
    assert NOTHING is smooth([], [], 10)
    assert NOTHING is smooth([1], [float("nan")], 10)


def test_a_constant_stays_a_constant() -> None:
    """Smoothing adds no slope of its own, however long the run is."""
    for count in (5, 400, 100_000):
        curve = smooth(range(count), [2.5] * count, span=100)
        assert {2.5} == set(curve.y.tolist())


def test_a_column_can_grow_afterwards() -> None:
    """No buffer of the fold is held."""
    steps, row = array("q", [1, 2]), array("d", [1.0, 2.0])
    curves = envelope(steps, row), smooth(steps, row, 5)
    steps.append(3)
    row.append(3.0)
    assert 2 == len(curves[0].y)


@pytest.mark.parametrize("step", [10**15])
def test_steps_may_be_any_number(step: int) -> None:
    """A script of somebody's own may count tokens."""
    assert 4 <= len(envelope([1, 2, step], [1.0, 2.0, 3.0]).y) <= MOST_POINTS
    assert len(smooth([1, 2, step], [1.0, 2.0, 3.0], 5).y) <= MOST_POINTS
