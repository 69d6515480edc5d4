"""The one drawing thread of a kernel: it keeps every picture of each watched job current, and does nothing else.

Whatever writes to a widget runs here; callbacks of buttons and tabs only ``post``. It never prints: what a thread
prints after a message from the browser is lost, an update of a display arrives. So what goes wrong here is said by
the picture itself. It lives only while there is work.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from kernel_launcher.launcher.client import Watcher
    from kernel_launcher.protocol.fold import JobView
    from kernel_launcher.protocol.index import Entry

_log = logging.getLogger(__name__)


class Picture(Protocol):
    """Something on screen that shows a job."""

    def draw(self, entry: Entry, view: JobView) -> None:
        """Show the job as it is."""

    def fail(self, entry: Entry, error: Exception) -> None:
        """Say that it is not kept current any more, and why."""

    def close(self) -> None:
        """Something else takes its place."""


class Pump:
    """Draws each watched job about once a second, for the last time when it has ended.

    Args:
        seconds: From one round to the next.
    """

    def __init__(self, seconds: float = 1.0) -> None:
        self._seconds = seconds
        self._watched: dict[str, Watcher] = {}
        self._pictures: dict[Hashable, tuple[str, Picture]] = {}
        self._actions: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._soon = False
        self._thread: threading.Thread | None = None

    def watch(
        self,
        watcher: Watcher,
        pictures: dict[Hashable, Picture],
        gone: Callable[[Hashable], bool] = lambda _: False,
    ) -> None:
        """Keep pictures of a job current until it ends; the watcher belongs to the pump from now on.

        Args:
            watcher: Of the job.
            pictures: By their place on screen; what was at that place before is closed.
            gone: Whether a place is not on screen any more, of this job or of another: what was there is closed, too.
        """
        job_id = watcher.entry.id
        with self._changed:
            for place in [place for place in self._pictures if place in pictures or gone(place)]:
                close = self._pictures.pop(place)[1].close
                self._actions.append(partial(self._safely, close, "a picture could not be closed"))
            self._pictures.update({place: (job_id, picture) for place, picture in pictures.items()})
            self._watched[job_id] = watcher
            self._wake()

    def post(self, action: Callable[[], None], fail: Callable[[Exception], None] | None = None) -> None:
        """Run something in the pump's thread, then draw.

        Args:
            action: What to do.
            fail: Shows, in the same thread, what the action raised; without it that is only logged.
        """
        with self._changed:
            self._actions.append(partial(self._safely, action, "a click could not be followed", fail))
            self._wake()

    def watches(self, job_id: str) -> bool:
        """Whether a job is kept current."""
        return job_id in self._watched

    def settle(self, job_id: str, timeout: float = 10.0) -> None:
        """Wait until the end of a job that has ended is drawn; at once for a job that is not watched."""
        with self._changed:
            self._soon = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: job_id not in self._watched, timeout)

    def close(self) -> None:
        """Watch nothing any more, and end the thread; what is on screen stays."""
        with self._changed:
            self._watched.clear()
            self._pictures.clear()
            self._actions.clear()
            self._soon = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=10)

    def _wake(self) -> None:
        self._soon = True
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="veri-pump", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._next_round():
            while self._actions:
                self._actions.popleft()()
            for watcher in list(self._watched.values()):
                self._forget(watcher, ended=not self._goes_on(watcher))

    def _next_round(self) -> bool:
        with self._changed:
            if self._watched:
                self._changed.wait_for(lambda: self._soon, self._seconds)
            self._soon = False
            if not self._watched and not self._actions:
                self._thread = None
                return False
            return True

    def _goes_on(self, watcher: Watcher) -> bool:
        entry = watcher.entry
        what = f"{entry.id} is no longer kept current"
        found: list[JobView] = []
        pictures = [(place, each) for place, (job_id, each) in list(self._pictures.items()) if job_id == entry.id]

        def all_fail(error: Exception) -> None:
            for _, picture in pictures:
                self._safely(partial(picture.fail, entry, error), what)

        if not self._safely(lambda: found.append(watcher.refresh()), what, all_fail):
            return False
        for place, picture in pictures:
            if not self._safely(partial(picture.draw, entry, found[0]), what, partial(picture.fail, entry)):
                self._pictures.pop(place, None)
        return not found[0].status.is_terminal

    def _safely(
        self, act: Callable[[], object], what: str, fail: Callable[[Exception], object] | None = None
    ) -> bool:
        try:
            act()
        except Exception as error:
            # Whatever is wrong with one picture must not end the thread that draws the others.
            _log.exception(what)
            if fail is not None:
                self._safely(partial(fail, error), f"{what}, and the page could not be told")
            return False
        return True

    def _forget(self, watcher: Watcher, *, ended: bool) -> None:
        """Where the job has ended or nobody sees it; asked under the lock, for it may just have been shown again."""
        job_id = watcher.entry.id
        with self._changed:
            is_seen = any(job_id == shown for shown, _ in self._pictures.values())
            # Not one that another watcher follows now, which has not drawn the end yet.
            if (ended or not is_seen) and self._watched.get(job_id) is watcher:
                del self._watched[job_id]
                self._changed.notify_all()
