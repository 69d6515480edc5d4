"""Is the launcher of a run alive? Decided by the lock that it holds, never by a bare pid.

On a network file system locks cannot be trusted; there the host name and the age of the heartbeat decide.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import psutil

from kernel_launcher.protocol.files import read_json

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_launcher.protocol.paths import RunDir

HEARTBEAT_LOST_SECONDS = 60
_NETWORK_FILE_SYSTEMS = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "fuse.",
    "9p",
    "afs",
    "glusterfs",
)


def identity() -> dict[str, str | int | float]:
    """This process, told apart from a later one that gets the same pid."""
    process = psutil.Process()
    return {"host": socket.gethostname(), "pid": process.pid, "pid_created": process.create_time()}


def find_process(who: object) -> psutil.Process | None:
    """The running process that an ``identity`` names, if it is on this host and still that process."""
    if not isinstance(who, dict) or who.get("host") != socket.gethostname():
        return None
    try:
        process = psutil.Process(int(who["pid"]))
        same = abs(process.create_time() - float(who["pid_created"])) < 1
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.Error, KeyError, TypeError, ValueError, OverflowError):
        return None


def on_network_file_system(path: Path) -> bool:
    """Whether a path lies on a file system whose locks may lie."""
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    for folder in (path.resolve(), *path.resolve().parents):
        if str(folder) in mounts:
            return mounts[str(folder)].startswith(_NETWORK_FILE_SYSTEMS)
    return False


class LauncherLock:
    """The lock that a launcher holds from its first line to its end; the file says who holds it.

    Raises:
        BlockingIOError: Another launcher holds it.
    """

    def __init__(self, run: RunDir) -> None:
        self._file = os.open(run.lock, os.O_RDWR | os.O_CREAT, 0o600)
        # A probe holds the lock for an instant, shared: try again past it.
        for last_try in (*[False] * 40, True):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if last_try:
                    os.close(self._file)
                    raise
                time.sleep(0.025)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(identity()).encode(), 0)


def is_alive(run: RunDir) -> bool:
    """Whether the launcher of this run is alive."""
    if on_network_file_system(run.root):
        holder = read_json(run.lock)
        if isinstance(holder, dict) and holder.get("host") == socket.gethostname():
            return find_process(holder) is not None
        return _heartbeat_age(run) < HEARTBEAT_LOST_SECONDS
    return _is_locked(run.lock)


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _heartbeat_age(run: RunDir) -> float:
    status = read_json(run.status)
    if not isinstance(status, dict) or "heartbeat_at" not in status:
        return float("inf")
    return (datetime.now(UTC) - datetime.fromisoformat(status["heartbeat_at"])).total_seconds()
