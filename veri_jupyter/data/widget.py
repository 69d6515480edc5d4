"""A widget to leaf through the rows of a data set, of any kind, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_launcher.data.show.view import KINDS
from veri_jupyter.data import html
from veri_jupyter.environment import hear_while_busy

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel_launcher.data.show.look import Look
    from kernel_launcher.data.show.view import Kind


def leaf(look: Look, kind: Kind) -> Any:
    """The widget for one look."""
    made = Leaf(kind=kind)
    made.show(look)
    return made.widget


class Leaf:
    """Which kind of rows, which of them, and the row. Every part of it is reached by keyboard.

    Args:
        post: Runs what a click asks for, in the thread that owns the widgets; at once where there is none.
        kind: Of the rows at first.

    Attributes:
        widget: To be shown; it is empty before the first look.
    """

    def __init__(self, post: Callable[[Callable[[], None]], None] | None = None, kind: Kind = "random") -> None:
        import ipywidgets as widgets

        self._post = post or (lambda act: act())
        self._look: Look | None = None
        narrow = widgets.Layout(width="40px")
        self._kinds = widgets.Dropdown(
            options=KINDS, value=kind, description="rows", tooltip="which rows", layout=widgets.Layout(width="190px")
        )
        self._back = widgets.Button(description="<", tooltip="previous row", layout=narrow)
        self._place = widgets.BoundedIntText(
            min=1, max=1, description="number", tooltip="which of them", layout=widgets.Layout(width="170px")
        )
        self._on = widgets.Button(description=">", tooltip="next row", layout=narrow)
        self._of = widgets.Label()
        self._page = widgets.HTML()
        self._kinds.observe(lambda _: self._post(self._turn_to_first), "value")
        self._place.observe(lambda _: self._post(self._draw), "value")
        self._back.on_click(lambda _: self._post(lambda: self._turn(-1)))
        self._on.on_click(lambda _: self._post(lambda: self._turn(1)))
        controls = [self._kinds, self._back, self._place, self._on, self._of]
        for control in controls:
            hear_while_busy(control)
        # The style is sent once, and not with each row.
        self.widget = widgets.VBox([widgets.HBox(controls), self._page, widgets.HTML(html.style())])

    def show(self, look: Look) -> None:
        """Show the rows of another look; kind and place stay."""
        if look is not self._look:
            self._look = look
            self._draw()

    def _turn_to_first(self) -> None:
        self._place.value = 1
        self._draw()

    def _turn(self, by: int) -> None:
        self._place.value += by

    def _draw(self) -> None:
        assert self._look is not None, "nothing can be clicked before"
        kind = self._kinds.value
        count = len(self._look.numbers(kind))
        self._of.value = f"of {count:,}"
        self._place.max = max(1, count)
        at = self._place.value - 1
        self._back.disabled, self._on.disabled = at == 0, at + 1 >= count
        self._page.value = html.rows(self._look.view(kind, 1, first=at), styled=False)
