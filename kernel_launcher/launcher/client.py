"""A job seen from outside: start it, find it, stop it, ask its model; ``watcher`` follows it."""

from __future__ import annotations

import errno
import secrets
import shutil
import subprocess
import threading
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kernel_launcher.errors import Fault, JobNotFound
from kernel_launcher.facts.machine import usable_cores
from kernel_launcher.launcher import reap
from kernel_launcher.launcher.environment import interpreter, job_environment
from kernel_launcher.launcher.interrupt import interrupts_kept
from kernel_launcher.launcher.watcher import START_SECONDS, Watcher, final_status, follow, follow_log, log_lines
from kernel_launcher.protocol import control, index
from kernel_launcher.protocol.failure import TAIL_LINES
from kernel_launcher.protocol.files import now, read_json, readable, tail
from kernel_launcher.protocol.liveness import find_process
from kernel_launcher.protocol.paths import RunDir
from kernel_launcher.protocol.states import Status
from kernel_launcher.secrets import redact

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_launcher.preflight import Prepared
    from kernel_launcher.protocol.fold import JobView
    from kernel_launcher.protocol.index import Entry

__all__ = [
    "Failed", "Launched", "Refused", "Reused", "Watcher", "find", "follow", "follow_log", "log_lines",
    "start", "stop",
]  # fmt: skip

_LEAST_FREE_BYTES = 1_000_000
_DAY = len("-YYYYMMDD")
_FULL = (errno.ENOSPC, errno.EDQUOT)
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
    prepared: Prepared, *, base_dir: Path, run_dir: Path | None = None, again: bool = False
) -> Launched | Reused | Refused | Failed:
    """Start a job in a detached process, and return once it has reported.

    Without a name it is named after its base model.

    Args:
        prepared: What was checked and planned.
        base_dir: Where ``runs/<name>/`` goes: the notebook's folder.
        run_dir: The job's folder, if not the default; must be empty or not exist.
        again: Start anew although the same job runs or is done.
    """
    fingerprint = prepared.fingerprint
    name = prepared.spec.job.name
    run_dir = run_dir.absolute() if run_dir else None
    with index.exclusive():
        found = None if again else _same_job(fingerprint, name, run_dir, (base_dir / "runs").absolute())
        if found is not None:
            return found
        if name and (running := _running(name)):
            reason = f"a job of this name is running ({running.id})."
            return Refused(Fault("name", name, reason, "Take another name, or stop that job first."))
        name = name or _free_name(prepared.default_name)
        run = RunDir(run_dir) if run_dir else _free_folder((base_dir / "runs").absolute(), name)
        if run.is_taken():
            return Refused(Fault("run_dir", str(run.root), "is not an empty folder.", "Take another one."))
        was_there = run.root.is_dir()
        created = now()
        stamp = datetime.fromisoformat(created).strftime("%Y%m%d-%H%M%S")
        entry = index.Entry(
            id=f"{name}-{stamp}-{secrets.token_hex(2)}",
            name=name,
            root=str(run.root),
            created_at=created,
            fingerprint=fingerprint,
        )
        try:
            run.create()
            prepared.write(run, job=asdict(entry))
        except OSError as error:
            _clear(run, was_there=was_there)
            fix = "Free some space, or take another folder." if error.errno in _FULL else "Take another folder."
            return Refused(Fault("run_dir", str(run.root), f"cannot be written: {error.strerror or error}.", fix))
        outcome = _enter_and_spawn(entry, prepared)
        if not isinstance(outcome, Launched):
            _clear(run, was_there=was_there)
        return outcome


def find(key: str) -> Entry:
    """The job with this id, name or run folder (the newest of several); ``last`` is the newest of all.

    The beginning of an id will do where only one fits. What goes past the name must hold the day: ``first-2`` is a
    folder that may be gone, and the beginning of the id of any job ``first``.

    Raises:
        JobNotFound: None, or more than one, fits.
    """
    entries = index.entries()
    if key == "last" and entries:
        return entries[0]
    by_id = [entry for entry in entries if entry.id == key]
    named = [entry for entry in entries if entry.name == key]
    if called := [*by_id, *named, *(entry for entry in entries if entry.run.root.name == key)]:
        return called[0]
    found = [entry for entry in entries if key and _begins(entry, key)]
    if len(found) == 1:
        return found[0]
    if found:
        raise JobNotFound(f"{key!r} fits {len(found)} jobs.", "One of: " + ", ".join(entry.id for entry in found[:5]))
    recent = ", ".join(entry.id for entry in entries[:5])
    raise JobNotFound(
        f"there is no job {redact(key)!r}.", f"The newest are: {recent}" if recent else "None was started."
    )


def _begins(entry: Entry, key: str) -> bool:
    left = key.removeprefix(entry.name)
    return entry.id.startswith(key) and (left == key or len(left) >= _DAY)


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
    patience = grace + _ELASTIC_SECONDS if patience is None else patience
    try:
        control.send(entry.run, "stop", now=now)
        if _ended(watcher, patience):
            return watcher.refresh()
    except OSError:
        pass  # a full disk takes no request; a signal needs no disk
    # It does not answer. Never SIGKILL first: the agent's ranks are sessions of their own and would run on.
    launcher = find_process(read_json(entry.run.lock))
    if launcher is not None:
        launcher.terminate()
        if _ended(watcher, patience):
            return watcher.refresh()
    left = reap.rank_processes(watcher.refresh())
    reap.end([launcher, *left] if launcher is not None else left)
    return watcher.refresh()


def _enter_and_spawn(entry: Entry, prepared: Prepared) -> Launched | Refused | Failed:
    try:
        index.add(entry)
    except OSError as error:
        reason = f"the index of jobs cannot be written: {error.strerror or error}."
        fix = "Free some space there, or set VERI_HOME." if error.errno in _FULL else "Set VERI_HOME."
        return Refused(Fault("VERI_HOME", str(index.home()), reason, fix))
    outcome = _spawn(entry, prepared)
    if isinstance(outcome, Failed):
        index.remove(entry.id)
    return outcome


def _spawn(entry: Entry, prepared: Prepared) -> Launched | Failed:
    run = entry.run
    try:
        process = _launcher(entry, prepared)
    except OSError as error:
        return Failed(f"the launcher could not be started: {error}", ())
    threading.Thread(target=process.wait, name=f"reap-{entry.id}", daemon=True).start()
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if run.launcher_events.exists() and run.launcher_events.stat().st_size:
            return Launched(entry)
        if process.returncode is not None:
            break
        time.sleep(0.02)
    process.kill()
    free = shutil.disk_usage(run.root).free
    why = f": {free:,} bytes are free in {run.root}" if free < _LEAST_FREE_BYTES else ""
    planned = set(prepared.plan.describe())
    words = [readable(redact(line)) for line in tail(run.launcher_log, TAIL_LINES) if line not in planned]
    return Failed(f"the launcher did not come up{why}", tuple(words))


def _launcher(entry: Entry, prepared: Prepared) -> subprocess.Popen[bytes]:
    with entry.run.launcher_log.open("ab") as log:
        return subprocess.Popen(
            [interpreter(prepared.spec.resources.python), "-u", "-P", "-m", "kernel_launcher.launcher", entry.root],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Both are needed: a session of its own alone dies with the kernel's pipes.
            start_new_session=True,
            cwd=entry.root,
            env=job_environment(prepared.plan, usable_cores()),
        )


def _same_job(fingerprint: str, name: str | None, run_dir: Path | None, runs: Path) -> Reused | None:
    """The job of this spec and data that runs or is done: in that folder, of that name, or beside this notebook."""
    for entry in index.entries():
        root = entry.run.root
        here = root == run_dir if run_dir else entry.name == name if name else root.parent == runs
        if entry.fingerprint != fingerprint or not here:
            continue
        view = Watcher(entry).refresh()
        done = view.status is Status.COMPLETED and entry.run.final.is_dir()
        if done or not view.status.is_terminal:
            return Reused(entry, view)
    return None


def _running(name: str) -> Entry | None:
    for entry in index.entries():
        # The status file first: folding the events of every old job of that name would take its time.
        if entry.name == name and final_status(entry.run) is None and not Watcher(entry).refresh().status.is_terminal:
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
    with interrupts_kept() as check_interrupt:
        while time.monotonic() < deadline:
            if watcher.refresh().status.is_terminal:
                return True
            time.sleep(0.2)
            check_interrupt()
    return False


def _clear(run: RunDir, *, was_there: bool) -> None:
    """Remove what a start that did not come about has made, and nothing else."""
    for path in run.root.iterdir() if was_there else [run.root]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
