"""Ends this rank when its launcher is gone: whatever the main thread waits for, a thread can still look."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import psutil

from kernel_launcher.protocol.liveness import is_alive

if TYPE_CHECKING:
    from kernel_launcher.protocol.paths import RunDir

LOOK_SECONDS = 2.0
_LOOKS = 2  # one look may fall into the instant at which somebody else tries the lock


def start(run: RunDir) -> None:
    """Look at the launcher's lock from a daemon thread for as long as this process lives."""
    threading.Thread(target=_watch, args=(run,), name="watch", daemon=True).start()


def end_children() -> None:
    """Kill every descendant of this process, such as data workers."""
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.Error:
            continue


def _watch(run: RunDir) -> None:
    missed = 0
    while missed < _LOOKS:
        time.sleep(LOOK_SECONDS)
        missed = 0 if is_alive(run) else missed + 1
    end_children()
    # Nothing gentler: the main thread may sit in a collective that never returns to Python.
    os.kill(os.getpid(), signal.SIGKILL)
