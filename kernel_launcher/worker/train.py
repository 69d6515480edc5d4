"""The story of one rank: find the base, prepare the rows, load, train, save."""

from __future__ import annotations

import copy
import os
from functools import partial
from typing import TYPE_CHECKING

from kernel_launcher.worker.base import Base, choose_pad_token, load_model, load_tokenizer

if TYPE_CHECKING:
    from kernel_launcher.worker.assignment import Assignment
    from kernel_launcher.worker.reporter import Reporter


def train(assignment: Assignment, reporter: Reporter) -> None:
    """Do one rank's part; whatever goes wrong is raised."""
    ...
