"""Jobs side by side: their losses on one chart, and the settings that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_launcher.protocol.files import read_json, readable
from veri_jupyter.environment import frontend, has_widgets
from veri_jupyter.monitor import static
from veri_jupyter.monitor.chart import main_panels
from veri_jupyter.monitor.show import display_bundle, say
from veri_jupyter.monitor.spark import blocks, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from veri_jupyter.monitor.moment import Moment

_UNSET = "—"


class Comparison:
    """Some jobs as they were at one time.

    Attributes:
        names: Of the jobs; their ids where two share a name.
        differences: The settings that differ, each with its value in every job.
    """

    def __init__(self, moments: Sequence[Moment]) -> None:
        self._moments = moments
        names = [moment.entry.name for moment in moments]
        self.names = [
            name if names.count(name) == 1 else moment.entry.id for name, moment in zip(names, moments, strict=True)
        ]
        self.differences = _differences([_settings(moment) for moment in moments])

    def figure(self, max_points: int = 500) -> Any:
        """The losses in one plotly figure: smoothed, evaluations as dots."""
        from veri_jupyter.monitor.figures import losses

        return losses({name: main_panels(moment, max_points)[0] for name, moment in self._pairs()})

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.names)}>"

    def __str__(self) -> str:
        rows = [("", *self.names), *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        padded = (map(str.ljust, row, widths) for row in rows)
        curves = [f"{name}: {blocks(main_panels(moment)[0])}" for name, moment in self._pairs()]
        return "\n".join([*("  ".join(row).rstrip() for row in padded), *curves])

    def _repr_html_(self) -> str:
        return static.grid(("", *self.names), self._rows())

    def _ipython_display_(self) -> None:
        if not frontend().is_kernel:
            say([str(self)])
            return
        if has_widgets():
            from veri_jupyter.monitor.figures import as_mime

            display_bundle({"text/plain": repr(self), **as_mime(self.figure())})
        display_bundle({"text/plain": str(self), "text/html": self._repr_html_()})

    def _pairs(self) -> zip[tuple[str, Moment]]:
        return zip(self.names, self._moments, strict=True)

    def _rows(self) -> list[tuple[str, ...]]:
        moments = self._moments
        loss = [_UNSET if moment.summary.loss is None else number(moment.summary.loss) for moment in moments]
        return [
            ("status", *(moment.summary.word for moment in moments)),
            ("step", *(f"{moment.view.step} of {moment.view.total_steps}" for moment in moments)),
            ("loss", *loss),
            *((key, *values) for key, values in self.differences.items()),
        ]


def _settings(moment: Moment) -> dict[str, str]:
    """What was decided, and of what was asked the model and the data; empty where it cannot be read."""
    run = moment.entry.run
    plan, asked = read_json(run.plan), read_json(run.spec)
    found: dict[str, str] = {}
    for source, sections in ((plan, ("method", "resources")), (_within(asked, "spec"), ("model", "dataset"))):
        for section in sections:
            for key, value in _within(source, section).items():
                name = f"{section}.{key}" if section != "method" else "method" if key == "type" else key
                found[name] = readable(str(value))
    return found


def _within(value: Any, key: str) -> Mapping[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _differences(settings: Sequence[dict[str, str]]) -> dict[str, list[str]]:
    keys = dict.fromkeys(key for found in settings for key in found)
    rows = {key: [found.get(key, _UNSET) for found in settings] for key in keys}
    return {key: values for key, values in rows.items() if len(set(values)) > 1}
