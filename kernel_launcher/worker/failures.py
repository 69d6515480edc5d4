"""From an exception to the record that a rank leaves before it ends."""

from __future__ import annotations

import errno
import re
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING

from kernel_launcher.errors import VeriError
from kernel_launcher.protocol.failure import RankRecord
from kernel_launcher.protocol.files import readable
from kernel_launcher.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_launcher.worker.assignment import Rank

_MOST_CHARACTERS = 20_000
_HEARD_OF_SECONDS = 1.0
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# Rust and C++ libraries (safetensors, tokenizers, torch) wrap the system's error in classes of their own.
_TEXTS = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        ("No space left on device|Disk quota exceeded", "disk_full"),
        ("can't allocate memory|Cannot allocate memory", "host_oom"),
        ("no kernel image is available|NVIDIA driver on your system is too old", "dependency_error"),
        # What becomes of a data worker of this rank.
        ("out of shared memory", "shm_exhausted"),
        (r"worker \(pid.*\) (is killed by signal: (Killed|Terminated)|exited unexpectedly)", "killed_externally"),
        (r"worker \(pid.*\) is killed by signal", "native_crash"),
    )
)


class PeerFailed(Exception):
    """Another rank has failed and says why in its own record; this one only ends."""


def settled(error: BaseException) -> BaseException:
    """The error, or the death of one of this rank's data workers where that is what is behind it.

    A connection to a data worker breaks a moment before its parent hears of the death. To be called first, once:
    torch raises such a death out of a signal handler, wherever the thread then is, and that must not be in the making
    of the record.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    torch = sys.modules.get("torch")
    if torch is None:
        return error
    until = time.monotonic() + (_HEARD_OF_SECONDS if isinstance(error, (OSError, EOFError)) else 0)
    while True:
        try:
            torch._C._error_if_any_worker_fails()  # noqa: SLF001 - as its own handler
        except RuntimeError as death:
            death.__cause__ = error
            return death
        if time.monotonic() >= until:
            return error
        time.sleep(0.02)


def code_of(error: BaseException) -> str | None:
    """The failure code of an exception or of what caused it; None where it is just an error in training."""
    for link in _chain(error):
        code = _own_code(link)
        if code is not None:
            return code
    return None


def record_of(error: BaseException, rank: Rank, *, phase: str, step: int) -> RankRecord:
    """What this rank says about its failure, without secrets, and of a length that a page can show."""
    text = f"exit code {error.code}" if isinstance(error, SystemExit) else _text_of(error)
    return RankRecord(
        rank=rank.rank,
        local_rank=rank.local_rank,
        world_size=rank.world_size,
        code=code_of(error),
        exception=type(error).__name__,
        text=_bounded(text),
        traceback=_bounded("".join(traceback.format_exception(error))),
        phase=phase,
        step=step,
        time_ns=time.time_ns(),
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # somebody else's class may fail in any way; its traceback is still worth having
        return "(its text cannot be had)"


def _bounded(text: str) -> str:
    """Of a long line its start, of a long text its start and its end: the frames, and what was raised."""
    clean = redact(readable(text, len(text)))  # before any cut: half a token would not be known as one
    lines = "\n".join(readable(line) for line in clean.split("\n"))
    if len(lines) <= _MOST_CHARACTERS:
        return lines
    half = _MOST_CHARACTERS // 2
    return f"{lines[:half]}\n… {len(lines) - 2 * half:,} characters left out …\n{lines[-half:]}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__


def _own_code(error: BaseException) -> str | None:
    if isinstance(error, VeriError):
        return error.code
    if isinstance(error, SystemExit):
        return "user_exit"
    if isinstance(error, ImportError):
        return "dependency_error"
    if isinstance(error, MemoryError):
        return "host_oom"
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        return "disk_full"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return "oom"
    text = _text_of(error)
    return next((code for pattern, code in _TEXTS if pattern.search(text)), None)
