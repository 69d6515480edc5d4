"""Measuring a step of what the memory model does not know, in a thread of its own: that takes half a minute."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kernel_launcher.errors import Fault, InvalidRequest, VeriError
from kernel_launcher.planner.verdict import Fit
from kernel_launcher.preflight import trace
from kernel_launcher.preflight.model import model_stamp
from veri_jupyter.monitor.trouble import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from kernel_launcher.planner import Plan
    from kernel_launcher.planner.traced import Traced
    from kernel_launcher.spec import JobSpec
    from veri_jupyter.explorer.state import Judged

_log = logging.getLogger(__name__)

_OFFERED = "One step of it can be measured in a process of its own, and is known from then on."
_MEASURING = "One step of it is measured in a process of its own; anything can be changed meanwhile."
_ANOTHER = "Another plan is measured now; this one can be after it."


class Offer(NamedTuple):
    """What there is to say of a measurement.

    Attributes:
        said: Beside the button; empty where nothing is to be measured.
        is_possible: Whether there is a button.
        is_measuring: Whether one is on its way, of this plan or another.
    """

    said: str = ""
    is_possible: bool = False
    is_measuring: bool = False


class Measures:
    """Measurements that somebody asked for, one at a time; each counts for the plan that it was asked for.

    All but the measuring itself happens in the thread that ``post`` stands for.

    Args:
        post: Runs something in the thread that asks.
        changed: Called there when a measurement has begun or ended.
    """

    def __init__(self, post: Callable[[Callable[[], None]], None], changed: Callable[[], None]) -> None:
        self._post, self._changed = post, changed
        self._found: dict[Hashable, Traced] = {}
        self._failed: dict[Hashable, str] = {}
        self._now: Hashable | None = None

    def look(self, judged: Judged) -> tuple[Judged, Offer]:
        """The same with what was measured of it, and what there is to say where nothing was."""
        spec, plan = judged.spec, judged.plan
        if spec is None or plan is None or plan.verdict.fit is not Fit.CANNOT_SAY:
            return judged, Offer()
        key = _key(spec, plan)
        traced = self._found.get(key)
        if traced is None:
            try:
                traced = _known(spec, plan)
            except InvalidRequest as error:
                return judged, Offer(f"It cannot be measured, either: {_refusal(error.faults[0])}")
        if traced is None:
            return judged, self._offer(key)
        return replace(judged, plan=replace(plan, outlook=replace(plan.outlook, traced=traced))), Offer()

    def begin(self, judged: Judged) -> None:
        """Measure a step of this."""
        spec, plan = judged.spec, judged.plan
        if self._now is not None or spec is None or plan is None or plan.verdict.fit is not Fit.CANNOT_SAY:
            return
        self._now = _key(spec, plan)
        self._failed.pop(self._now, None)
        threading.Thread(target=self._measure, args=(self._now, spec, plan), name="veri-trace", daemon=True).start()
        self._changed()

    def _offer(self, key: Hashable) -> Offer:
        if self._now is None:
            return Offer(self._failed.get(key, _OFFERED), is_possible=True)
        return Offer(_MEASURING if key == self._now else _ANOTHER, is_possible=True, is_measuring=True)

    def _measure(self, key: Hashable, spec: JobSpec, plan: Plan) -> None:
        """In that thread."""
        found: Traced | str
        try:
            found = trace.trace(spec, plan)
        except InvalidRequest as error:
            found = _refusal(error.faults[0])
        except VeriError as error:
            found = _words(error.message, error.hint)
        except Exception as error:
            # Whatever it was: nobody sees what this thread prints, and the page would say for ever that it measures.
            _log.exception("the plan could not be measured")
            found = in_words(error)
        self._post(lambda: self._end(key, found))

    def _end(self, key: Hashable, found: Traced | str) -> None:
        self._now = None
        if isinstance(found, str):
            self._failed[key] = f"Not measured: {found}"
        else:
            self._found[key] = found
        self._changed()


def _key(spec: JobSpec, plan: Plan) -> Hashable:
    """What a measurement is of."""
    stamp = model_stamp(spec)
    return spec.model, stamp, plan.outlook.workload, plan.method.use_liger, spec.resources.python


def _known(spec: JobSpec, plan: Plan) -> Traced | None:
    # Another interpreter is asked when somebody clicks: it may take seconds to tell its packages.
    return trace.known(spec, plan) if spec.resources.python is None else None


def _refusal(fault: Fault) -> str:
    return _words(fault.reason, fault.fix)


def _words(reason: str, fix: str) -> str:
    return reason if fix in ("", trace.LEAVE_OUT) else f"{reason} {fix}"
