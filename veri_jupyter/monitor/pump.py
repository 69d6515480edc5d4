"""The one drawing thread of a kernel: it keeps the summary of each watched job current, and does nothing else.

It calls ``draw`` and never prints: what a thread prints after a message from the browser is lost, an update of a
display arrives. It lives only while a job is watched.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel_launcher.launcher.client import Watcher
    from kernel_launcher.protocol.fold import JobView
    from kernel_launcher.protocol.index import Entry

_log = logging.getLogger(__name__)


class Pump:
    """Draws each watched job about once a second, for the last time when it has ended.

    Args:
        draw: Shows a job as it is; called in the pump's thread.
        seconds: From one round to the next.
    """

    def __init__(self, draw: Callable[[Entry, JobView], None], seconds: float = 1.0) -> None:
        self._draw = draw
        self._seconds = seconds
        self._watched: dict[str, Watcher] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, watcher: Watcher) -> None:
        """Keep a job current until it ends; the watcher belongs to the pump from now on."""
        with self._changed:
            self._watched[watcher.entry.id] = watcher
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="veri-pump", daemon=True)
                self._thread.start()

    def watches(self, job_id: str) -> bool:
        """Whether a job is kept current."""
        return job_id in self._watched

    def settle(self, job_id: str, timeout: float = 10.0) -> None:
        """Wait until the end of a job that has ended is drawn; at once for a job that is not watched."""
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: job_id not in self._watched, timeout)

    def close(self) -> None:
        """Watch nothing any more, and end the thread."""
        with self._changed:
            self._watched.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=10)

    def _run(self) -> None:
        while watchers := self._next_round():
            for watcher in watchers:
                if not self._goes_on(watcher):
                    self._forget(watcher)

    def _next_round(self) -> list[Watcher]:
        with self._changed:
            if self._watched:
                self._changed.wait(self._seconds)
            if not self._watched:
                self._thread = None
            return list(self._watched.values())

    def _goes_on(self, watcher: Watcher) -> bool:
        try:
            view = watcher.refresh()
            self._draw(watcher.entry, view)
        except Exception:
            # Whatever is wrong with one job must not end the thread that draws the others.
            _log.exception("the summary of %s is no longer kept current", watcher.entry.id)
            return False
        return not view.status.is_terminal

    def _forget(self, watcher: Watcher) -> None:
        with self._changed:
            # The job may have been shown again meanwhile, by a watcher that has not drawn the end yet.
            if self._watched.get(watcher.entry.id) is watcher:
                del self._watched[watcher.entry.id]
                self._changed.notify_all()
