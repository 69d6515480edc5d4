"""``show_data``, and what it gives: a notebook shows it as HTML or as a widget, a terminal as text."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_launcher.data.show.text import headline, text
from kernel_launcher.data.show.view import KINDS
from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.preflight import look_at
from kernel_launcher.secrets import shown
from veri_jupyter import checks, start
from veri_jupyter.data import html
from veri_jupyter.environment import frontend, has_live_widgets
from veri_jupyter.monitor.show import say

if TYPE_CHECKING:
    from kernel_launcher.data.show.look import Look
    from kernel_launcher.data.show.view import DataView, Kind


def show_data(
    spec_or_model: object,
    data: object | None = None,
    /,
    *,
    n: int = 5,
    kind: str = "random",
    display: str = "auto",
    model: str | Path | None = None,
    heldout: str | Path | None = None,
    **hyperparameters: Any,
) -> ShownData:
    """The rows of a data set as a model learns from them: each token and whether it is trained, lengths, findings.

    It needs no torch, and looks at the first 5,000 rows.

    Args:
        spec_or_model: A dict, a TOML file or its text, or a base model's folder; with ``model``, the data.
        data: A file, a list of dicts, a DataFrame or a Dataset.
        n: Rows to show.
        kind: ``random`` by ``seed``, ``longest``, ``cut`` or left out, or ``suspicious``: what findings name.
        display: ``widget`` leafs through the rows, ``static`` is HTML that stays, ``none`` shows nothing; ``auto`` is
            a widget where the page is known to show one.
        model: A base model's folder, where the data comes first.
        heldout: A file of held-out rows; those of them that are also trained on are found.
        hyperparameters: Any setting, such as ``method="dpo"`` or ``loss_on="all"``.

    Raises:
        InvalidRequest: With everything that is wrong.
    """
    choice = Choice.of(n=n, kind=kind, display=display)
    source = spec_or_model
    if model is not None:
        source, data = _data_first(spec_or_model, data, model)
    if not isinstance(source, Mapping | str | Path):
        reason, fix = "rows alone have no tokens: a model's tokenizer makes them.", 'Write model="./model".'
        raise InvalidRequest([Fault("model", "", reason, fix)])
    held_out = checks.file("heldout", heldout)
    spec, rows = start.read_job(source, data, hyperparameters)
    return ShownData(look_at(spec, rows, held_out), choice)


class Choice(NamedTuple):
    """Which rows are shown, and how."""

    n: int
    kind: Kind
    display: str

    @classmethod
    def of(cls, *, n: object, kind: object, display: object) -> Choice:
        """What was asked for.

        Raises:
            InvalidRequest: There is no such number, kind or display, or it cannot be shown here.
        """
        return cls(checks.whole("n", n, 1), checks.choice("kind", kind, KINDS), checks.display(display))


class ShownData:
    """A data set as its model learns from it.

    Attributes:
        view: All that is shown, as values.
    """

    def __init__(self, look: Look, choice: Choice) -> None:
        self.view: DataView = look.view(choice.kind, choice.n)
        self._look = look
        self._display = choice.display

    def to_json(self) -> dict[str, Any]:
        """The view as a JSON object."""
        return self.view.to_json()

    def show(self) -> None:
        """Show it where the cell's output goes."""
        if self._display == "none":
            return
        if not frontend().is_kernel:
            say([text(self.view, colour=sys.stdout.isatty())])
        elif self._display == "widget" or (self._display == "auto" and has_live_widgets()):
            self._show_widget()
        else:
            _publish({"text/plain": str(self), "text/html": self._repr_html_()})

    def _show_widget(self) -> None:
        """The summary as HTML, which stays in a saved notebook, and the rows as a widget, which does not."""
        from veri_jupyter.data.widget import leaf

        _publish({"text/plain": headline(self.view), "text/html": html.summary(self.view)})
        widget = leaf(self._look, self.view.kind)._repr_mimebundle_()
        # A page without widgets shows the rows as HTML.
        _publish({**widget, "text/plain": str(self), "text/html": html.rows(self.view)})

    def __str__(self) -> str:
        return text(self.view)

    def __repr__(self) -> str:
        return f"<ShownData {headline(self.view)}>"

    def _repr_html_(self) -> str:
        return html.page(self.view)

    def _ipython_display_(self) -> None:
        self.show()


def _data_first(rows: object, data: object | None, model: object) -> tuple[str | Path, object]:
    """Model and data, of a call that names the model."""
    if data is not None:
        reason, fix = "is named, and two more things are given.", "Give the data alone, or leave model out."
        raise InvalidRequest([Fault("model", shown("model", model), reason, fix)])
    if not isinstance(model, str | Path):
        raise InvalidRequest([Fault("model", shown("model", model), "is no folder.", 'Write model="./model".')])
    return model, rows


def _publish(data: dict[str, Any]) -> None:
    from IPython.display import display

    display(data, raw=True)
