"""What the model would learn from the rows: one at a time, token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipywidgets as widgets

from veri_jupyter.data.widget import Leaf
from veri_jupyter.explorer import picture

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel_launcher.data.show.look import Look
    from veri_jupyter.explorer.looks import Seen

_LOOKING = "Looking at the rows…"


class Learns:
    """The rows, and what there is to say where none can be shown; most of it is made with the first look.

    Args:
        post: Runs what a click asks for.
    """

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._leaf: Leaf | None = None
        self._said = widgets.HTML()
        self.widget = widgets.VBox([self._said])
        self.widget.add_class("vx-learns")

    def draw(self, seen: Seen) -> None:
        """Show what is seen; the rows of the look before stay while another is on its way."""
        said = seen.why_not if seen.look is None else _summary(seen.look)
        self._said.value = picture.note(_LOOKING if seen.is_looking else said)
        if seen.look is not None:
            self._leaf = self._leaf or Leaf(self._post)
            self._leaf.show(seen.look)
        if self._leaf is not None:
            self._leaf.widget.layout.display = "none" if seen.look is None and not seen.is_looking else None
            self.widget.children = (self._said, self._leaf.widget)


def _summary(look: Look) -> str:
    """What there is to say of the rows; a finding counts all of them, and names the first."""
    which = "rows" if look.complete else "first rows"
    found = ", ".join(f"{finding.code} {finding.count:,}" for finding in look.findings) or "nothing"
    return f"Of the {which}: cut {len(look.numbers('cut')):,}; suspicious: {found}."
