"""The index of jobs in the user's state directory: one small file a job, so that a notebook finds what it started."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

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
    write_json(_folder() / f"{entry.id}.json", asdict(entry))


def remove(job_id: str) -> None:
    """Forget a job; its folder stays."""
    (_folder() / f"{job_id}.json").unlink(missing_ok=True)


def entries() -> list[Entry]:
    """Every job whose folder is still there, newest first."""
    found = []
    for path in _folder().glob("*.json"):
        value = read_json(path)
        try:
            entry = Entry(**value) if isinstance(value, dict) else None
        except TypeError:
            continue
        if entry is not None and entry.run.spec.exists():
            found.append(entry)
    return sorted(found, key=lambda entry: (entry.created_at, entry.id), reverse=True)


@contextmanager
def exclusive() -> Iterator[None]:
    """One start at a time for this user, so that two cells cannot both take a name or a folder."""
    file = os.open(_folder().parent / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _folder() -> Path:
    folder = home() / "jobs"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
