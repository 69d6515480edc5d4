"""``python -m tests.process.peaks RUN_DIR…``: as ``cells``, and each rank writes the most that torch had allocated.

Counted by torch's profiler from before the model is read, and looked at during steps 2 and 3.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

from torch.profiler import ProfilerActivity, profile, record_function
from transformers import TrainerCallback

from kernel_launcher.worker import models, train
from tests.process import cells

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernel_launcher.worker.assignment import Assignment
    from kernel_launcher.worker.reporter import Reporter

_MARK = "steps 2 and 3"
_SPREAD = "giving weights to all ranks"
_FILE = "peak.txt"


class _Mark(TrainerCallback):
    """Names the steps in the profile."""

    def __init__(self) -> None:
        self._range = record_function(_MARK)

    def on_step_begin(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.global_step == 1:
            self._range.__enter__()

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.global_step == 3:
            self._range.__exit__(None, None, None)


def peak_of(folder: Path) -> int:
    """What a rank has written, in bytes."""
    return int((folder / _FILE).read_text())


def main(run_dirs: list[str]) -> int:
    """Do this rank's part of each job; returns the exit code."""
    do, callbacks = train.train, train._callbacks

    def profiled(assignment: Assignment, reporter: Reporter) -> None:
        gc.collect()  # what the job before has left would be counted, and freed on the way
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            do(assignment, reporter)
        (assignment.rank.folder(assignment.run).root / _FILE).write_text(str(_peak(profiler)))

    train._callbacks = lambda *args: [*callbacks(*args), _Mark()]
    train.train = profiled
    models.spread = record_function(_SPREAD)(models.spread)
    return cells.main(run_dirs)


def _peak(profiler: Any) -> int:
    """The most bytes of tensors alive at once in the marked steps, added up from allocations by address.

    What gloo's threads free, the profiler does not see: its own total grows with each collective, by 105 MB of 227 in
    one run. Left out for that reason is what only passes through gloo: the weights on their way to the ranks, and the
    clones that it makes of what is reduced, which NCCL, that the plan is for, does not.
    """
    tree = profiler.profiler.kineto_results.experimental_event_tree()
    events = sorted(_walk(tree), key=lambda event: event.start_time_ns)
    mark = next(event for event in events if event.name == _MARK)
    alive: dict[int, int] = {}
    held = most = 0
    for event in events:
        if event.name != "[memory]" or event.start_time_ns > mark.end_time_ns:
            continue
        found = event.extra_fields
        held -= alive.pop(found.ptr, 0)  # freed now, or unseen before the address was given out again
        if found.alloc_size > 0 and not _passes_through(event):
            alive[found.ptr] = found.alloc_size
            held += found.alloc_size
        if event.start_time_ns >= mark.start_time_ns:
            most = max(most, held)
    return most


def _passes_through(event: Any) -> bool:
    parent = event.parent
    while parent is not None:
        if parent.name.startswith(("c10d::", _SPREAD)):
            return True
        parent = parent.parent
    return False


def _walk(events: Any) -> Iterator[Any]:
    waiting = list(events)
    while waiting:
        event = waiting.pop()
        yield event
        waiting.extend(event.children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
