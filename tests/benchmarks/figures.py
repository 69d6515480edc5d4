"""Figures as lines of text, with the goal beside the measurement."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def line(what: str, values: Sequence[float], unit: str, goal: str, digits: int = 3) -> str:
    """The median of some measurements, their range, and the goal."""
    low, high = min(values), max(values)
    spread = f"{low:.{digits}f} to {high:.{digits}f}, {len(values)} measured"
    return f"{what:58} {median(values):10.{digits}f} {unit:6} goal {goal:9} ({spread})"
