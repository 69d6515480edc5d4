"""Ends processes that a job has left, each known by pid and creation time; never one that merely has the pid."""

from __future__ import annotations

import ctypes
import signal
from typing import TYPE_CHECKING

import psutil

from kernel_launcher.protocol.liveness import find_process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernel_launcher.protocol.fold import JobView

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Let orphans below this process become its children, so that a dead rank's data workers can be found."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def rank_processes(view: JobView) -> list[psutil.Process]:
    """The ranks of a job that run on this host, with their descendants."""
    ranks = [found for rank in view.ranks.values() if (found := find_process(rank.process)) is not None]
    return [*ranks, *(child for rank in ranks for child in _descendants(rank))]


def children() -> list[psutil.Process]:
    """Every descendant of this process."""
    return _descendants(psutil.Process())


def end(processes: Iterable[psutil.Process], *, grace_seconds: float = 0) -> list[psutil.Process]:
    """Ask processes to end, then make them.

    Args:
        processes: What to end.
        grace_seconds: From SIGTERM to SIGKILL; 0 kills at once.

    Returns:
        What is still there five seconds after the SIGKILL: stuck in the kernel.
    """
    left = list(processes)
    if grace_seconds > 0:
        _send(left, signal.SIGTERM)
        _, left = psutil.wait_procs(left, timeout=grace_seconds)
    _send(left, signal.SIGKILL)
    _, stuck = psutil.wait_procs(left, timeout=5)
    return [process for process in stuck if _is_there(process)]


def _is_there(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)  # psutil compares the creation time first
        except psutil.Error:
            continue
