"""A head that opens what is below it. It is a button: the heads of an ipywidgets accordion take no keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipywidgets as widgets

from veri_jupyter.environment import hear_while_busy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Fold:
    """The head and what is below it, closed at first; the page opens it by itself, by the style of a pressed button.

    Args:
        title: Of the head.
        body: What is below it.
        turned: Called when it was opened or closed, in whatever thread the message comes.
    """

    def __init__(self, title: str, body: Sequence[widgets.Widget], turned: Callable[[], None]) -> None:
        self.head = widgets.ToggleButton(description=title, tooltip="")
        self.body = widgets.VBox(list(body))
        self.widget = widgets.VBox([self.head, self.body])
        self.head.observe(lambda _: turned(), "value")
        hear_while_busy(self.head)
        for part, name in ((self.head, "vx-head"), (self.body, "vx-body"), (self.widget, "vx-fold")):
            part.add_class(name)

    @property
    def title(self) -> str:
        """What the head says."""
        return str(self.head.description)

    @title.setter
    def title(self, title: str) -> None:
        self.head.description = title

    @property
    def is_open(self) -> bool:
        """Whether somebody sees what is below."""
        return bool(self.head.value)
