"""Every way to run the same batch, as a list that one click takes from; made when it is opened, closed at first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import ipywidgets as widgets

from veri_jupyter.environment import hear_while_busy
from veri_jupyter.explorer import ways
from veri_jupyter.explorer.fields import Quietly
from veri_jupyter.explorer.fold import Fold

if TYPE_CHECKING:
    from kernel_launcher.planner import Plan
    from kernel_launcher.planner.alternatives import Alternative
    from veri_jupyter.explorer.state import State
    from veri_jupyter.explorer.ways import Way

_ROWS = 12


class Actions(Protocol):
    """What somebody can do here."""

    def take(self, way: Way) -> None:
        """Change what another way changes."""

    def look_again(self) -> None:
        """Something else is in sight."""


class Every:
    """The list. A way is one row of it, the plan's is the selected one: the arrow keys go through them.

    Args:
        actions: What somebody can do.
    """

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._quietly = Quietly()
        self._ways: list[Way] = []
        self._list = widgets.Select(options=(), rows=_ROWS, tooltip="every way to this batch")
        self._list.observe(self._taken, "index")
        heads = widgets.HTML(f'<div class="vx-heads" aria-hidden="true">{ways.HEADS}</div>')
        hear_while_busy(self._list)
        self._fold = Fold("All ways", (heads, self._list), actions.look_again)
        self.widget = self._fold.widget
        self.widget.add_class("vx-all")

    def draw(self, state: State, plan: Plan, found: list[Alternative]) -> None:
        """Show how many there are, and while it is open, all of them."""
        self._fold.title = f"All {len(found)} ways to this batch" if found else "All ways: none is known"
        self._list.disabled = False
        if not self._fold.is_open:
            return
        self._ways, now = ways.every(state, plan, found)
        with self._quietly, self._list.hold_sync():
            self._list.options = tuple(way.text for way in self._ways)
            self._list.index = now

    def disable(self) -> None:
        """While the settings are refused there is nothing to take."""
        self._list.disabled = True

    def _taken(self, change: dict[str, Any]) -> None:
        if self._quietly.is_this_thread:
            return
        # The list may have become another one since it was clicked.
        for way in self._ways[change["new"] : change["new"] + 1] if change["new"] is not None else ():
            self._actions.take(way)
