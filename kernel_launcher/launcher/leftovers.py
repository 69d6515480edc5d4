"""Half-written files of processes that were killed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_launcher.protocol.paths import RunDir


def clean(run: RunDir, *, keep_model: bool = False) -> None:
    """Remove what was left half-written; a model of many gigabytes, for one.

    Args:
        run: A job whose processes have ended.
        keep_model: Leave the model that could not be verified, for a person to look at.
    """
    for path in run.unfinished():
        path.unlink(missing_ok=True)
    if not keep_model:
        shutil.rmtree(run.final_scratch, ignore_errors=True)
