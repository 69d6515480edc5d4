"""The index of jobs in the user's state directory: one small file a job, so that a notebook finds what it started."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from kernel_launcher.errors import VeriError
from kernel_launcher.protocol.files import read_json, write_json
from kernel_launcher.protocol.paths import RunDir

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One job: who it is, where it runs, and the fingerprint of what was asked (spec and data)."""

    id: str
    name: str
    root: str
    created_at: str
    fingerprint: str

    @property
    def run(self) -> RunDir:
        """The job's folder."""
        return RunDir(Path(self.root))


def home() -> Path:
    """The user's state directory for this project; ``VERI_HOME`` moves it."""
    return Path(os.environ.get("VERI_HOME") or platformdirs.user_state_path("veri-jupyter"))


def add(entry: Entry) -> None:
    """Enter a job.

    Raises:
        OSError: The index cannot be written.
    """
    _folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(_folder() / f"{entry.id}.json", asdict(entry))


def remove(job_id: str) -> None:
    """Forget a job; its folder stays."""
    (_folder() / f"{job_id}.json").unlink(missing_ok=True)


def entries() -> list[Entry]:
    """Every job whose folder is still there, newest first."""
    found = [entry for path in _folder().glob("*.json") if (entry := _read(path)) is not None]
    return sorted(found, key=lambda entry: (entry.created_at, entry.id), reverse=True)


def added(fingerprint: str, since: str) -> Entry | None:
    """The newest job of this fingerprint, if it was entered at that time or later."""
    return next((job for job in entries() if job.fingerprint == fingerprint and job.created_at >= since), None)


@contextmanager
def exclusive() -> Iterator[None]:
    """One start at a time for this user, so that two cells cannot both take a name or a folder.

    Raises:
        VeriError: The user's state directory cannot be written.
    """
    try:
        home().mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(home() / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        message = f"the index of jobs cannot be kept in {home()}: {error.strerror}."
        raise VeriError("no_state_directory", message, "Set VERI_HOME to a folder that can be written.") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _read(path: Path) -> Entry | None:
    value = read_json(path)
    try:
        if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            entry = Entry(**value)
            # Another job may have taken the folder of one that was deleted.
            asked: Any = read_json(entry.run.spec)
            return entry if asked["job"]["id"] == entry.id else None
    except (TypeError, KeyError, OSError):  # not an entry, or its folder is gone or cannot be looked into
        pass
    return None


def _folder() -> Path:
    return home() / "jobs"
