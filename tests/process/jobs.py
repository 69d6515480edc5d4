"""Starting real jobs in tests, and finding every process that they have."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import psutil

from kernel_launcher.launcher import client
from kernel_launcher.preflight import prepare
from kernel_launcher.spec import read_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel_launcher.protocol.fold import JobView
    from kernel_launcher.protocol.index import Entry

ENDLESS = 100_000


def start(folder: Path, model: Path, data: Path, **settings: Any) -> Entry:
    """Start a job on the tiny model; its run folder goes below ``folder``."""
    settings = {"lora_rank": 4, "max_seq_length": 64, "dataset_id": str(data), "gpu_type": "CPU"} | settings
    spec = read_spec(str(model), settings=settings, base_dir=folder)
    outcome = client.start(prepare(spec, base_dir=folder), base_dir=folder)
    assert isinstance(outcome, client.Launched), outcome
    return outcome.entry


def wait_until(entry: Entry, holds: Callable[[JobView], bool], seconds: float = 120) -> JobView:
    """Watch a job until something holds of it; fails with the job's log if it does not in time."""
    watcher = client.Watcher(entry)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        view = watcher.refresh()
        if holds(view):
            return view
        if view.status.is_terminal:
            break
        time.sleep(0.2)
    log = "\n".join(client.log_lines(entry, n=40))
    raise AssertionError(f"{entry.id} is {view.status} at step {view.step}: {view.reason}\n{log}")


def processes(entry: Entry) -> list[psutil.Process]:
    """Every process of a job: launcher, ranks, data workers; all carry the run folder in their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            if entry.root in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def launcher(entry: Entry) -> psutil.Process:
    """The launcher of a running job."""
    return next(p for p in processes(entry) if "kernel_launcher.launcher" in p.cmdline())


def rank(entry: Entry, number: int) -> psutil.Process:
    """One rank of a running job."""
    view = client.Watcher(entry).refresh()
    process = view.ranks[number].process
    assert process is not None
    return psutil.Process(process["pid"])


def data_worker(entry: Entry, number: int) -> psutil.Process:
    """A data worker of a rank."""
    return rank(entry, number).children()[0]


def left_after(entry: Entry, seconds: float) -> list[psutil.Process]:
    """The processes of a job that are still there after at most so many seconds."""
    deadline = time.monotonic() + seconds
    while (left := processes(entry)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def environment(added: dict[str, str]) -> dict[str, str]:
    """This process's environment, with more."""
    return {**os.environ, **added}
