"""``Explorer``: what ``explore`` gives. Live where somebody looks at it, else the card of its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import InvalidRequest
from veri_jupyter.environment import cell_run, frontend, has_live_widgets
from veri_jupyter.explorer.state import Judged, State, judge
from veri_jupyter.monitor.show import display_bundle, need_widgets, pump, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_launcher.planner import Plan
    from kernel_launcher.spec import JobSpec
    from veri_jupyter.explorer.live import Live
    from veri_jupyter.job import Job

_HOW = "To move it: open this notebook in JupyterLab or VS Code, or show it with display='widget' (--display widget)."
_views: dict[str, list[tuple[str, Live]]] = {}  # by cell, with the run that showed it: the next run closes it


class Explorer:
    """A job that is not decided yet: its spec and its plan as they are now.

    Attributes:
        job: The job that was started last from here; None before.
    """

    def __init__(self, state: State, variables: Mapping[str, Any], display: str = "auto") -> None:
        self.job: Job | None = None
        self._state, self._variables, self._display = state, variables, display
        self._live: Live | None = None

    @property
    def state(self) -> State:
        """The settings as they are now."""
        return self._live.state if self._live else self._state

    @property
    def spec(self) -> JobSpec:
        """What is asked; raises ``InvalidRequest`` where it is refused."""
        judged = self._judged
        if judged.spec is None or judged.plan is None:
            raise InvalidRequest(judged.faults)
        return judged.spec

    @property
    def plan(self) -> Plan:
        """What would run; raises ``InvalidRequest`` where it is refused."""
        judged = self._judged
        if judged.plan is None:
            raise InvalidRequest(judged.faults)
        return judged.plan

    @property
    def _judged(self) -> Judged:
        judged = judge(self.state)
        return self._live.measured(judged) if self._live else judged

    def show(self) -> None:
        """Show it where the cell's output goes.

        Raises:
            InvalidRequest: The settings are refused, and it is shown as a card.
            VeriError: The packages of the live view are missing.
        """
        if self._display == "widget" or (self._display == "auto" and has_live_widgets()):
            self._show_live()
        elif frontend().is_kernel:
            plan = self.plan
            display_bundle({"text/plain": f"{plan}\n{_HOW}", "text/html": f"{plan.html()}<div>{_HOW}</div>"})
        else:
            say([str(self.plan), _HOW])

    def _show_live(self) -> None:
        need_widgets("The explorer")
        from veri_jupyter.explorer.live import Live

        cell, run = cell_run()
        if cell:
            for shown_in, before in _views.get(cell, []):
                if shown_in != run:
                    pump.post(before.close)
            _views[cell] = [shown for shown in _views.get(cell, []) if shown[0] == run]
        self._live = Live(self.state, self._variables, pump, self._started)
        if cell:
            _views[cell].append((run, self._live))
        judged = self._live.judged
        saved = {} if judged.plan is None else {"text/plain": str(judged.plan), "text/html": judged.plan.html()}
        # A page without widgets, such as a saved notebook, shows the plan that it started with.
        display_bundle({**self._live.widget._repr_mimebundle_(), **saved})

    def _started(self, job: Job) -> None:
        self.job = job

    def __repr__(self) -> str:
        judged = self._judged
        said = judged.plan.line if judged.plan else "; ".join(map(str, judged.faults))
        return f"<Explorer {said}>"

    def _ipython_display_(self) -> None:
        self.show()
