"""A widget to leaf through the rows of a data set, of any kind, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_launcher.data.show.view import KINDS
from veri_jupyter.data import html

if TYPE_CHECKING:
    from kernel_launcher.data.show.look import Look
    from kernel_launcher.data.show.view import Kind


def leaf(look: Look, kind: Kind) -> Any:
    """The widget: which kind of rows, which of them, and the row. Every part of it is reached by keyboard."""
    import ipywidgets as widgets

    narrow = widgets.Layout(width="40px")
    kinds = widgets.Dropdown(options=KINDS, value=kind, description="rows", layout=widgets.Layout(width="190px"))
    back = widgets.Button(description="<", tooltip="previous row", layout=narrow)
    place = widgets.BoundedIntText(min=1, max=1, description="number", layout=widgets.Layout(width="170px"))
    on = widgets.Button(description=">", tooltip="next row", layout=narrow)
    of = widgets.Label()
    shown = widgets.HTML()
    numbers: list[int] = []

    def choose(_: object = None) -> None:
        numbers[:] = look.numbers(kinds.value)
        of.value = f"of {len(numbers):,}"
        place.max = max(1, len(numbers))
        place.value = 1
        turn()

    def turn(_: object = None) -> None:
        at = place.value - 1
        back.disabled, on.disabled = at == 0, at + 1 >= len(numbers)
        shown.value = html.rows(look.view(kinds.value, 1, first=at))

    kinds.observe(choose, "value")
    place.observe(turn, "value")
    back.on_click(lambda _: setattr(place, "value", place.value - 1))
    on.on_click(lambda _: setattr(place, "value", place.value + 1))
    choose()
    return widgets.VBox([widgets.HBox([kinds, back, place, on, of]), shown])
