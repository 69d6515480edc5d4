"""A job seen from outside: start it, find it, watch it, stop it, ask its model. Nothing here runs in a job."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import Fault, JobNotFound, VeriError
from kernel_launcher.launcher import reap
from kernel_launcher.launcher.environment import job_environment
from kernel_launcher.launcher.verdict import attribution_of
from kernel_launcher.protocol import control, index
from kernel_launcher.protocol.events import EventReader
from kernel_launcher.protocol.failure import TAIL_LINES, Failure
from kernel_launcher.protocol.files import now, read_json, tail, write_json
from kernel_launcher.protocol.fold import JobView
from kernel_launcher.protocol.liveness import find_process, is_alive
from kernel_launcher.protocol.logs import job_log, rank_log
from kernel_launcher.protocol.paths import RunDir
from kernel_launcher.protocol.states import Status
from kernel_launcher.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kernel_launcher.preflight import Prepared
    from kernel_launcher.protocol.index import Entry

_START_SECONDS = 60
_ELASTIC_SECONDS = 30  # how long the agent waits for ranks that were asked to end, before it makes them


@dataclass(frozen=True, slots=True)
class Launched:
    """A new job runs."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Reused:
    """The same job (spec and data) runs already, or is done."""

    entry: Entry
    view: JobView


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was started: the name or the folder is taken."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class Failed:
    """The launcher did not come up; the end of its log says why."""

    message: str
    log_tail: tuple[str, ...]


def start(
    prepared: Prepared,
    *,
    base_dir: Path,
    name: str | None = None,
    run_dir: Path | None = None,
    again: bool = False,
) -> Launched | Reused | Refused | Failed:
    """Start a job in a detached process, and return once it has reported.

    Args:
        prepared: What was checked and planned.
        base_dir: Where ``runs/<name>/`` goes: the notebook's folder.
        name: The job's name; without one it is named after the base model.
        run_dir: The job's folder, if not the default; must be empty or not exist.
        again: Start anew although the same job runs or is done.
    """
    fingerprint = prepared.fingerprint
    name = name or prepared.spec.job.name
    with index.exclusive():
        found = _same_job(fingerprint, name, base_dir)
        if found is not None and not again:
            return found
        if name and (running := _running(name)):
            reason = f"a job of this name is running ({running.id})."
            return Refused(
                Fault("name", name, reason, f"Take another name, or stop it: veri-jupyter stop {running.id}")
            )
        name = name or _free_name(prepared.default_name)
        run = RunDir(run_dir) if run_dir else _free_folder(base_dir / "runs", name)
        try:
            run.create()
        except OSError as error:
            return Refused(Fault("run_dir", str(run.root), f"cannot be used: {error}.", "Take another folder."))
        created = now()
        stamp = datetime.fromisoformat(created).strftime("%Y%m%d-%H%M%S")
        entry = index.Entry(
            id=f"{name}-{stamp}-{secrets.token_hex(2)}",
            name=name,
            root=str(run.root.absolute()),
            created_at=created,
            fingerprint=fingerprint,
        )
        try:
            prepared.write(run, job=asdict(entry))
            index.add(entry)
        except OSError as error:
            _remove(run)
            return Refused(Fault("run_dir", str(run.root), f"cannot be written: {error}.", "Free some space."))
        return _spawn(entry, prepared)


def find(key: str) -> Entry:
    """The job with this id, unique prefix of an id, or name (the newest of that name); ``last`` is the newest of all.

    Raises:
        JobNotFound: None, or more than one, fits.
    """
    entries = index.entries()
    if key == "last" and entries:
        return entries[0]
    named = [entry for entry in entries if entry.id == key] or [entry for entry in entries if entry.name == key]
    if named:
        return named[0]
    found = [entry for entry in entries if key and entry.id.startswith(key)]
    if len(found) == 1:
        return found[0]
    if found:
        raise JobNotFound(f"{key!r} fits {len(found)} jobs.", "One of: " + ", ".join(entry.id for entry in found[:5]))
    recent = ", ".join(entry.id for entry in entries[:5])
    raise JobNotFound(
        f"there is no job {redact(key)!r}.", f"The newest are: {recent}" if recent else "None was started."
    )


class Watcher:
    """Follows one job: reads what is new, and sees when its launcher has died."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._reader = EventReader(entry.run)
        self._view = JobView(created_at=entry.created_at)

    def refresh(self) -> JobView:
        """The job as it is now; the same object each time."""
        view = self._view
        view.apply_all(self._reader.read())
        if not view.status.is_terminal and not self._may_live():
            view.apply_all(self._reader.read())  # it may have ended between the two looks
            if not view.status.is_terminal:
                self._lost()
        return view

    def _may_live(self) -> bool:
        if is_alive(self.entry.run):
            return True
        # Between the folder and the lock there is the launcher's start.
        age = datetime.fromisoformat(now()) - datetime.fromisoformat(self.entry.created_at)
        return self._view.status is Status.QUEUED and age.total_seconds() < _START_SECONDS

    def _lost(self) -> None:
        view, run = self._view, self.entry.run
        reap.end(reap.rank_processes(view), grace_seconds=2)
        asked = any(name == "stop" for name, _ in view.controls) or any(
            r.name == "stop" for r in control.pending(run)
        )
        if asked:
            view.status, view.reason = Status.CANCELLED, "stopped on request; its launcher had to be ended"
        else:
            message = f"the launcher died without a word; ranks that were left were ended\n{view.plan_line}"
            view.failure = Failure(
                code="launcher_lost",
                message=message,
                attribution=attribution_of("launcher_lost", len(view.ranks)),
                log_tail=tuple(job_log(run, TAIL_LINES)[-TAIL_LINES:]),
            )
            view.status, view.reason = Status.FAILED, view.failure.headline
        view.completed_at = view.last_event_at
        status = read_json(run.status) or {}
        error = view.failure.to_json() if view.failure else None
        status |= {"status": str(view.status), "reason": view.reason, "error": error}
        try:
            write_json(run.status, status | {"completed_at": view.completed_at})
        except OSError:
            return  # a folder that cannot be written can still be read: the next look says the same


def stop(entry: Entry, *, now: bool = False, patience: float | None = None) -> JobView:
    """Stop a job and wait until it has ended: ask, then SIGTERM, then SIGKILL for whatever is left.

    Args:
        entry: The job.
        now: Do not give the ranks time to end by themselves.
        patience: Seconds that the launcher has to act on the request, and again on SIGTERM; by default longer than
            the ranks' own grace.
    """
    watcher = Watcher(entry)
    view = watcher.refresh()
    if view.status.is_terminal:
        return view
    plan = read_json(entry.run.plan) or {}
    grace = plan.get("resources", {}).get("grace_seconds", _ELASTIC_SECONDS)
    control.send(entry.run, "stop", now=now)
    patience = grace + _ELASTIC_SECONDS if patience is None else patience
    if _ended(watcher, patience):
        return watcher.refresh()
    # It does not answer. Never SIGKILL first: the agent's ranks are sessions of their own and would run on.
    launcher = find_process(read_json(entry.run.lock))
    if launcher is not None:
        launcher.terminate()
        if _ended(watcher, patience):
            return watcher.refresh()
    left = reap.rank_processes(watcher.refresh())
    reap.end([launcher, *left] if launcher is not None else left)
    return watcher.refresh()


def follow(
    entry: Entry, on_change: Callable[[JobView], None], *, timeout: float | None = None, every: float = 0.5
) -> JobView:
    """Watch a job to its end, calling ``on_change`` with each look.

    Raises:
        TimeoutError: It did not end in time; the job goes on.
    """
    watcher = Watcher(entry)
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        view = watcher.refresh()
        on_change(view)
        if view.status.is_terminal:
            return view
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError(f"{entry.id} has not ended within {timeout:g} seconds; it goes on")
        time.sleep(every)


def log_lines(entry: Entry, rank: int | None = None, n: int = TAIL_LINES) -> list[str]:
    """The last ``n`` lines of one rank's log, or of the launcher's and each rank's under headings."""
    return job_log(entry.run, n) if rank is None else rank_log(entry.run.rank(rank), n)


def follow_log(entry: Entry, rank: int | None = None, n: int = TAIL_LINES, every: float = 0.5) -> Iterator[str]:
    """The last ``n`` lines of a job's log (of one rank, or of all), then each new one until the job has ended."""
    watcher = Watcher(entry)
    offsets: dict[Path, int] = {}
    yield from log_lines(entry, rank, n)
    for path in _log_files(entry.run, rank):
        offsets[path] = path.stat().st_size
    while True:
        ended = watcher.refresh().status.is_terminal
        for path in _log_files(entry.run, rank):
            with path.open("rb") as file:
                file.seek(offsets.get(path, 0))
                block = file.read()
            whole = len(block) if ended else block.rfind(b"\n") + 1
            offsets[path] = offsets.get(path, 0) + whole
            yield from (redact(line) for line in block[:whole].decode("utf-8", "replace").splitlines())
        if ended:
            return
        time.sleep(every)


def _log_files(run: RunDir, rank: int | None) -> list[Path]:
    folders = [run.rank(rank)] if rank is not None else [folder for _, folder in run.ranks()]
    files = [path for folder in folders for path in (folder.stdout, folder.stderr)]
    return [path for path in ([run.launcher_log, *files] if rank is None else files) if path.exists()]


def interpreter(spec_python: str | None) -> str:
    """The interpreter that runs a job: the spec's, or this one."""
    return spec_python or sys.executable


def generate(entry: Entry, prompts: Sequence[Any], *, base: bool = False, **options: Any) -> list[str]:
    """Answers of a job's model, or of its base model, from a process of its own.

    Args:
        entry: A completed job.
        prompts: Each a user's turn, or a list of messages.
        base: Ask the model as it was before.
        options: ``max_new_tokens``, ``temperature``.

    Raises:
        VeriError: The process failed; the message is its last line.
    """
    asked = read_json(entry.run.spec) or {}
    sections = asked.get("spec", {})
    request = {
        "model": str(entry.run.final),
        "base_model": sections.get("model", {}).get("base"),
        "revision": sections.get("model", {}).get("revision"),
        "trust_remote_code": sections.get("model", {}).get("trust_remote_code", False),
        "base": base,
        "prompts": list(prompts),
        **options,
    }
    python = interpreter(sections.get("resources", {}).get("python"))
    done = subprocess.run(
        [python, "-P", "-m", "kernel_launcher.worker.generate"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = redact(done.stderr).strip().splitlines()
        raise VeriError(
            "generate_failed", lines[-1] if lines else "the process said nothing", "\n".join(lines[-20:-1])
        )
    answers: list[str] = json.loads(done.stdout.strip().splitlines()[-1])["answers"]
    return answers


def _spawn(entry: Entry, prepared: Prepared) -> Launched | Failed:
    run = entry.run
    with run.launcher_log.open("ab") as log:
        process = subprocess.Popen(
            [interpreter(prepared.spec.resources.python), "-u", "-P", "-m", "kernel_launcher.launcher", entry.root],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Both are needed: a session of its own alone dies with the kernel's pipes.
            start_new_session=True,
            cwd=entry.root,
            env=job_environment(prepared.plan, len(os.sched_getaffinity(0))),
        )
    threading.Thread(target=process.wait, name=f"reap-{entry.id}", daemon=True).start()
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if run.launcher_events.exists() and run.launcher_events.stat().st_size:
            return Launched(entry)
        if process.returncode is not None:
            break
        time.sleep(0.02)
    process.kill()
    index.remove(entry.id)
    return Failed("the launcher did not come up", tuple(redact(line) for line in tail(run.launcher_log, TAIL_LINES)))


def _same_job(fingerprint: str, name: str | None, base_dir: Path) -> Reused | None:
    folder = (base_dir / "runs").absolute()
    for entry in index.entries():
        if entry.fingerprint != fingerprint or (entry.name != name if name else entry.run.root.parent != folder):
            continue
        view = Watcher(entry).refresh()
        done = view.status is Status.COMPLETED and entry.run.final.is_dir()
        if done or not view.status.is_terminal:
            return Reused(entry, view)
    return None


def _running(name: str) -> Entry | None:
    for entry in index.entries():
        if entry.name == name and not Watcher(entry).refresh().status.is_terminal:
            return entry
    return None


def _free_name(wanted: str) -> str:
    name, number = wanted, 1
    while _running(name):
        number += 1
        name = f"{wanted}-{number}"
    return name


def _free_folder(parent: Path, name: str) -> RunDir:
    folder, number = parent / name, 1
    while folder.exists():
        number += 1
        folder = parent / f"{name}-{number}"
    return RunDir(folder)


def _ended(watcher: Watcher, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if watcher.refresh().status.is_terminal:
            return True
        time.sleep(0.2)
    return False


def _remove(run: RunDir) -> None:
    import shutil

    shutil.rmtree(run.root, ignore_errors=True)
