"""``python -m tests.process.peaks RUN_DIR…``: as ``cells``, and each rank writes the most that torch had allocated.

Counted by torch's profiler from before the model is read, and looked at during steps 2 and 3. The weights on
their way to the ranks only pass through.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

from torch.profiler import ProfilerActivity, profile, record_function
from transformers import TrainerCallback

from kernel_launcher.worker import models, train
from scripts.allocations import most_alive
from tests.process import cells

if TYPE_CHECKING:
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
        most = most_alive(profiler, during=_MARK, passing=(_SPREAD,))
        (assignment.rank.folder(assignment.run).root / _FILE).write_text(str(most))

    train._callbacks = lambda *args: [*callbacks(*args), _Mark()]
    train.train = profiled
    models.spread = record_function(_SPREAD)(models.spread)
    return cells.main(run_dirs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
