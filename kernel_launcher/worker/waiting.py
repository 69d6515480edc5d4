"""Ranks that wait for rank 0 do so on a file: a collective would time out in a long download or tokenisation."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kernel_launcher.worker.failures import PeerFailed

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_launcher.worker.assignment import Assignment

_LOOK_SECONDS = 0.05


def wait_for_first_rank(path: Path, assignment: Assignment) -> None:
    """Return once the path exists. When rank 0 dies without a record, the agent ends this rank.

    Raises:
        PeerFailed: Rank 0 has left a failure record.
    """
    failure = assignment.run.rank(0, assignment.rank.attempt).failure
    while not path.exists():
        if failure.exists():
            raise PeerFailed
        time.sleep(_LOOK_SECONDS)
