"""The detached process of one job: holds the lock, starts the ranks, answers requests, and says how it ended.

It writes its first event before it imports torch: "started" means that this event was read back.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

from kernel_launcher.launcher import reap
from kernel_launcher.launcher.leftovers import clean
from kernel_launcher.launcher.verdict import attribution_of, judge, left_early
from kernel_launcher.planner.inputs import CPU
from kernel_launcher.protocol import control
from kernel_launcher.protocol.events import EventReader, EventWriter
from kernel_launcher.protocol.failure import TAIL_LINES, Failure, RankRecord
from kernel_launcher.protocol.files import now, read_json, write_json
from kernel_launcher.protocol.fold import JobView
from kernel_launcher.protocol.liveness import LauncherLock, find_process, identity
from kernel_launcher.protocol.logs import rank_log
from kernel_launcher.protocol.states import Status
from kernel_launcher.secrets import redact

if TYPE_CHECKING:
    from kernel_launcher.protocol.paths import RunDir

ATTEMPT = 0
_LOOK_SECONDS = 0.3
_HEARTBEAT_SECONDS = 5
_EARLY_SECONDS = 45  # the agent, which ends the ranks that a failed one leaves, takes up to 30 to do so
_FIRST_STEP_PHASES = ("first_step", "train", "eval", "save", "final")


class _Asked(BaseException):
    """A signal came while no ranks ran; not an Exception, so that no import in between swallows it."""


def supervise(run: RunDir) -> int:
    """Run one job to its end; returns the exit code: 0 completed, 1 failed, 130 cancelled."""
    LauncherLock(run)  # the process's: it goes with it, however it ends
    status = _Supervisor(run).run_job()
    return {Status.COMPLETED: 0, Status.CANCELLED: 130}.get(status, 1)


class _Supervisor:
    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._events = EventWriter(run.launcher_events, "launcher", attempt=ATTEMPT)
        self._reader = EventReader(run)
        self._view = JobView()
        self._mutex = threading.RLock()
        self._cancelled = False
        self._asked = False
        self._left_early: int | None = None
        self._gone_looks = 0
        self._over = threading.Event()
        self._who = identity()
        self._status = Status.QUEUED
        self._set_status(Status.PROVISIONING, "the launcher has started")

        asked = read_json(run.spec) or {}
        plan = read_json(run.plan) or {}
        self._job: dict[str, Any] = asked.get("job", {})
        self._plan_line: str = plan["line"]
        self._world_size: int = plan["resources"]["gpu_count"]
        self._grace_seconds: int = plan["resources"]["grace_seconds"]
        shown = {name: plan[name] for name in ("line", "resolved_parallelism", "warnings")}
        self._events.write("plan", **shown, planned_peak_bytes=_planned_peak(plan))

    def run_job(self) -> Status:
        """Start the ranks, wait for them, judge."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._raise_asked)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        reap.adopt_orphans()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        try:
            failure = self._run_ranks()
        except _Asked:
            failure = self._preempted()
        except Exception as error:
            failure = _launcher_failure(error)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            self._over.set()
        stuck = reap.end(reap.children(), grace_seconds=2)
        if stuck:
            self._write("warning", message=f"processes stuck in the kernel: {[process.pid for process in stuck]}")
        return self._end(failure)

    def _raise_asked(self, number: int, _: object) -> None:
        self._asked = True
        raise _Asked(signal.Signals(number).name)

    def _run_ranks(self) -> Failure | None:
        from kernel_launcher.launcher.elastic import Signalled, run_ranks

        if self._asked:
            raise _Asked  # something in torch's import can swallow what a signal handler raises
        self._set_status(Status.CONFIGURING, "the ranks are starting")
        try:
            exits = run_ranks(
                self._run,
                world_size=self._world_size,
                job_id=str(self._job.get("id", "job")),
                attempt=ATTEMPT,
                grace_seconds=self._grace_seconds,
            )
        except Signalled:
            return self._preempted()
        self._fold()
        if not exits.codes and self._view.artifact and self._run.final.is_dir():
            return None
        early = self._left_early if exits.codes else 0
        if early is not None and early not in exits.codes:
            return left_early(early, world_size=self._world_size, plan_line=self._plan_line, log_tail=self._log_tail)
        records = [RankRecord.read(folder.failure) for _, folder in self._run.ranks(ATTEMPT)]
        return judge(
            [record for record in records if record is not None],
            exits.codes,
            world_size=self._world_size,
            plan_line=self._plan_line,
            log_tail=self._log_tail,
        )

    def _end(self, failure: Failure | None) -> Status:
        self._fold()
        clean(self._run, keep_model=failure is not None and failure.code == "artifact_invalid")
        if failure is None:
            self._set_status(Status.COMPLETED, "the model is complete")
        elif self._cancelled:
            self._set_status(Status.CANCELLED, "stopped on request")
        else:
            self._write("failure", **failure.to_json())
            self._set_status(Status.FAILED, failure.headline, failure)
        return self._status

    def _watch(self) -> None:
        """Answer requests and keep the status file fresh until the ranks are done."""
        beats = 0.0
        while not self._over.wait(_LOOK_SECONDS):
            try:
                for request in control.pending(self._run):
                    self._answer(request)
                self._fold()
            except OSError as error:  # a full disk, a folder that was taken away: look again
                sys.stderr.write(f"the run folder cannot be looked at: {error}\n")
            self._end_if_left_early()
            if self._status is Status.CONFIGURING and self._view.phase in _FIRST_STEP_PHASES:
                self._set_status(Status.RUNNING, "the first step has begun")
            beats += _LOOK_SECONDS
            if beats >= _HEARTBEAT_SECONDS:
                beats = 0.0
                self._save_status()

    def _end_if_left_early(self) -> None:
        """A rank that leaves with exit code 0 before there is a model lets the others wait for ever: end them."""
        gone = [
            number for number, rank in self._view.ranks.items() if rank.process and not find_process(rank.process)
        ]
        if not gone or self._view.artifact or self._left_early is not None:
            self._gone_looks = 0
            return
        self._gone_looks += 1
        if self._gone_looks * _LOOK_SECONDS > _EARLY_SECONDS:
            self._left_early = gone[0]
            reap.end(reap.rank_processes(self._view), grace_seconds=2)

    def _answer(self, request: control.Request) -> None:
        request.path.unlink(missing_ok=True)
        if request.name != "stop":
            self._write("control", request=request.name, state="refused")
            return
        self._write("control", request=request.name, state="seen")
        first = not self._cancelled
        self._cancelled = True
        if request.fields.get("now"):
            reap.end(reap.rank_processes(self._view))
        if first:
            os.kill(os.getpid(), signal.SIGTERM)

    def _fold(self) -> None:
        with self._mutex:
            self._view.apply_all(self._reader.read())

    def _write(self, kind: str, **fields: Any) -> None:
        with self._mutex:
            self._events.write(kind, **fields)

    def _set_status(self, status: Status, reason: str, failure: Failure | None = None) -> None:
        with self._mutex:
            if not self._status.may_become(status):
                return
            self._status = status
            self._events.write("status", status=str(status), reason=reason)
            self._save_status(reason, failure)

    def _save_status(self, reason: str | None = None, failure: Failure | None = None) -> None:
        with self._mutex:
            status = self._view.to_status() | {
                "status": str(self._status),
                "heartbeat_at": now(),
                "launcher": self._who,
            }
            if reason is not None:
                status |= {"reason": reason, "error": failure.to_json() if failure else None}
            if self._status.is_terminal:
                status["completed_at"] = now()
            try:
                write_json(self._run.status, status)
            except OSError as error:
                # The events still say it; a full disk must not end a run that could go on.
                sys.stderr.write(f"status.json was not written: {error}\n")

    def _preempted(self) -> Failure:
        message = f"the launcher was asked to end by a signal from outside\n{self._plan_line}"
        return Failure(code="preempted", message=message, attribution=attribution_of("preempted", self._world_size))

    def _log_tail(self, rank: int) -> tuple[str, ...]:
        return tuple(rank_log(self._run.rank(rank, ATTEMPT), TAIL_LINES))


def _planned_peak(plan: dict[str, Any]) -> int:
    """Bytes that the plan says a rank will take of its GPU; 0 where it cannot say.

    On the processor it counts tensors, and what is measured there is the whole process: no figure to set beside it.
    """
    if plan["resources"]["gpu_type"] == CPU or not plan.get("peak"):
        return 0
    return int(plan["peak"]["total_bytes"])


def _launcher_failure(error: Exception) -> Failure:
    kind = "dependency_error" if isinstance(error, ImportError) else "launcher_error"
    text = redact("".join(traceback.format_exception(error)))
    sys.stderr.write(text)
    message = f"the launcher failed: {type(error).__name__}: {redact(str(error))}\n{text}"
    return Failure(code=kind, message=message, attribution="customer" if kind == "dependency_error" else "platform")
