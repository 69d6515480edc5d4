"""A job as it runs: its state, its log, and the moment when its launcher has died."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.launcher import reap
from kernel_launcher.launcher.interrupt import interrupts_kept
from kernel_launcher.launcher.leftovers import clean
from kernel_launcher.launcher.verdict import attribution_of
from kernel_launcher.protocol import control
from kernel_launcher.protocol.events import EventReader
from kernel_launcher.protocol.failure import TAIL_LINES, Failure
from kernel_launcher.protocol.files import lines_of, now, read_json, readable, write_json
from kernel_launcher.protocol.fold import JobView
from kernel_launcher.protocol.liveness import is_alive
from kernel_launcher.protocol.logs import job_log, rank_log
from kernel_launcher.protocol.states import Status
from kernel_launcher.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kernel_launcher.protocol.index import Entry
    from kernel_launcher.protocol.paths import RunDir

START_SECONDS = 60  # how long a launcher may take to its first event
_ENDED = [str(status) for status in Status if status.is_terminal]


class Watcher:
    """Follows one job: reads what is new, and sees when its launcher has died."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._reader = EventReader(entry.run)
        self._view = JobView(created_at=entry.created_at)

    def refresh(self) -> JobView:
        """The job as it is now; the same object each time."""
        view = self._view
        view.apply_all(self._reader.stream())
        if not view.status.is_terminal and not self._may_live():
            view.apply_all(self._reader.read())  # it may have ended between the two looks
            if not view.status.is_terminal:
                self._settle()
        return view

    def _may_live(self) -> bool:
        if is_alive(self.entry.run):
            return True
        # Between the folder and the lock there is the launcher's start.
        age = datetime.fromisoformat(now()) - datetime.fromisoformat(self.entry.created_at)
        return self._view.status is Status.QUEUED and age.total_seconds() < START_SECONDS

    def _settle(self) -> None:
        """The launcher is gone without a last event: end what it left, and find out or decide how the job ended."""
        view, run = self._view, self.entry.run
        reap.end(reap.rank_processes(view), grace_seconds=2)
        clean(run)
        known = final_status(run)
        if known is not None:
            view.status, view.reason = Status(known["status"]), str(known.get("reason") or "")
            view.completed_at = str(known.get("completed_at") or "") or view.last_event_at
            view.failure = Failure.from_json(known.get("error"))
            return
        if ("stop", "seen") in view.controls or any(request.name == "stop" for request in control.pending(run)):
            view.status, view.reason = Status.CANCELLED, "stopped on request; its launcher had to be ended"
        else:
            view.failure = Failure(
                code="launcher_lost",
                message=f"the launcher died without a word; ranks that were left were ended\n{view.plan_line}",
                attribution=attribution_of("launcher_lost", len(view.ranks)),
                log_tail=tuple(job_log(run, TAIL_LINES)[-TAIL_LINES:]),
            )
            view.status, view.reason = Status.FAILED, view.failure.headline
        view.completed_at = view.last_event_at or self.entry.created_at
        try:
            write_json(run.status, (read_json(run.status) or {}) | view.to_status())
        except OSError:
            return  # a folder that cannot be written can still be read: the next look says the same


def final_status(run: RunDir) -> dict[str, Any] | None:
    """What the status file says of a job that has ended; None of any other."""
    status = read_json(run.status)
    return status if isinstance(status, dict) and status.get("status") in _ENDED else None


def follow(
    entry: Entry, on_change: Callable[[JobView], None], *, timeout: float | None = None, every: float = 0.5
) -> JobView:
    """Watch a job to its end, calling ``on_change`` with each look.

    Raises:
        TimeoutError: It did not end in time; the job goes on.
        KeyboardInterrupt: Ctrl-C; within ``every`` seconds.
    """
    watcher = Watcher(entry)
    deadline = None if timeout is None else time.monotonic() + timeout
    with interrupts_kept() as check_interrupt:
        while True:
            view = watcher.refresh()
            on_change(view)
            if view.status.is_terminal:
                return view
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{entry.id} has not ended within {timeout:g} seconds; it goes on")
            time.sleep(every)
            check_interrupt()


def log_lines(entry: Entry, rank: int | None = None, n: int = TAIL_LINES) -> list[str]:
    """The last ``n`` lines of one rank's log, or of the launcher's and each rank's under headings.

    Raises:
        InvalidRequest: There is no such rank, or ``n`` is below 1.
    """
    _check(entry, rank, n)
    return job_log(entry.run, n) if rank is None else rank_log(entry.run.rank(rank), n)


def follow_log(entry: Entry, rank: int | None = None, n: int = TAIL_LINES, every: float = 0.5) -> Iterator[str]:
    """The last ``n`` lines of a job's log (of one rank, or of all), then each new one until the job has ended.

    Raises:
        InvalidRequest: There is no such rank, or ``n`` is below 1.
    """
    _check(entry, rank, n)
    watcher = Watcher(entry)
    # Before the last lines are read: a line that is written in between then comes twice, not never.
    offsets = {path: path.stat().st_size for path in _log_files(entry.run, rank)}
    yield from log_lines(entry, rank, n)
    while True:
        ended = watcher.refresh().status.is_terminal
        for path in _log_files(entry.run, rank):
            with path.open("rb") as file:
                file.seek(offsets.get(path, 0))
                block = file.read()
            whole = len(block) if ended else block.rfind(b"\n") + 1
            offsets[path] = offsets.get(path, 0) + whole
            yield from (readable(redact(line)) for line in lines_of(block[:whole]))
        if ended:
            return
        time.sleep(every)


def _check(entry: Entry, rank: int | None, n: int) -> None:
    if n < 1:
        raise InvalidRequest([Fault("n", str(n), "must be at least 1.", "")])
    count = ((read_json(entry.run.plan) or {}).get("resources") or {}).get("gpu_count")
    if rank is not None and not 0 <= rank < (count or rank + 1):
        ranks = "one rank, 0" if count == 1 else f"{count} ranks, 0 to {count - 1}" if count else "no rank below 0"
        raise InvalidRequest([Fault("rank", str(rank), f"{entry.name} has {ranks}.", "")])


def _log_files(run: RunDir, rank: int | None) -> list[Path]:
    folders = [run.rank(rank)] if rank is not None else [folder for _, folder in run.ranks()]
    files = [path for folder in folders for path in (folder.stdout, folder.stderr)]
    return [path for path in ([run.launcher_log, *files] if rank is None else files) if path.exists()]
