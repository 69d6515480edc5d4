"""What the charts of a job show: panels and their lines, for every way of drawing them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from veri_jupyter.monitor.series import MOST_POINTS, NOTHING, Curve, envelope, smooth

if TYPE_CHECKING:
    from veri_jupyter.monitor.moment import Moment

Role = Literal["raw", "smooth", "eval"]

# From the Okabe-Ito set: told apart by colour-blind eyes, and above 3 to 1 against white and against black.
BLUE, ORANGE, GREEN, PURPLE, AMBER = COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
_MOST_EPOCH_LINES = 12
_FEWEST_STEPS_SHOWN = 50
_ASIDE = {
    "tokens_per_second": "tokens/s",
    "step_seconds": "seconds a step",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
}
_POINTS_ASIDE = 80
_EXACT = ("learning_rate",)  # no noise: a mean would only lag behind
_HEIGHT, _HEIGHT_OF_THREE = 260, 420


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One line of a panel; evaluations are ``points``, the others a ``curve``."""

    name: str
    role: Role
    curve: Curve = NOTHING
    points: tuple[tuple[int, float], ...] = ()

    @property
    def last(self) -> float | None:
        """Its newest value."""
        values = [value for _, value in self.points] or self.curve.y[np.isfinite(self.curve.y)].tolist()
        return values[-1] if values else None


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """Lines over the steps of a run."""

    title: str
    lines: tuple[Line, ...]

    def line(self, role: Role) -> Line | None:
        return next((line for line in self.lines if line.role == role), None)


def chart_height(method: str) -> int:
    """Pixels of the chart of a job, known before its first step."""
    return _HEIGHT_OF_THREE if method == "dpo" else _HEIGHT


def main_panels(moment: Moment, most: int = MOST_POINTS) -> list[Panel]:
    """Loss; for DPO margin and accuracy besides."""
    panels = [_panel(moment, "loss", "loss", most)]
    if moment.is_dpo:
        panels.append(_panel(moment, "rewards/margins", "margin", most))
        panels.append(_panel(moment, "rewards/accuracies", "accuracy", most))
    return panels


def side_panels(moment: Moment) -> list[Panel]:
    """Speed, learning rate, gradient: small pictures of what is there."""
    return [_panel(moment, key, title, _POINTS_ASIDE) for key, title in _ASIDE.items() if key in moment.view.series]


def newest(moment: Moment, key: str) -> float | None:
    """A metric as its line in a chart ends; None where its newest value is missing or not finite."""
    value = moment.view.latest(key)
    if value is None or key in _EXACT:
        return value
    most = _POINTS_ASIDE if key in _ASIDE else MOST_POINTS
    return float(smooth(moment.view.steps, moment.view.series[key], moment.span, most).y[-1])


def axis_end(moment: Moment) -> float:
    """The step at the right end: of the run, or of so small a half of a half of it that what is done can be seen."""
    view = moment.view
    end = float(max(view.total_steps, view.step, 1))
    if view.status.is_terminal:
        return float(max(view.step, 1))
    while end / 2 > max(_FEWEST_STEPS_SHOWN, 1.5 * view.step):
        end /= 2
    return end


def epoch_marks(moment: Moment) -> list[float]:
    """Steps at which an epoch ends, but for the last; none where they would be a fence."""
    if moment.epochs is None:
        return []
    total = round(moment.epochs[1], 3)
    if not 1 < total <= _MOST_EPOCH_LINES:
        return []
    steps = moment.view.total_steps / total
    return [round(steps * epoch, 2) for epoch in range(1, int(np.ceil(total)))]


def _panel(moment: Moment, key: str, title: str, most: int) -> Panel:
    view = moment.view
    column = view.series.get(key)
    if not column:
        raw = mean = NOTHING
    else:
        steps = view.steps[: len(column)]
        raw, mean = envelope(steps, column, most), smooth(steps, column, moment.span, most)
    if key in _EXACT:
        return Panel(title, (Line(title, "smooth", raw),))
    return Panel(
        title,
        (
            Line(f"{title}, each step", "raw", raw),
            Line(f"{title}, mean of about {moment.span} steps", "smooth", mean),
            Line(f"{title}, evaluation", "eval", points=tuple(moment.evaluations(key)[-most:])),
        ),
    )
