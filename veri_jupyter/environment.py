"""The one place that asks where this code runs: which frontend, and whether somebody sits in front of it."""

from __future__ import annotations

import sys
from enum import Enum
from importlib.util import find_spec
from typing import Any


class Frontend(Enum):
    """Who shows what a cell says."""

    SCRIPT = "plain Python, no IPython"
    TERMINAL = "IPython in a terminal"
    NOTEBOOK = "a kernel with a person behind it"
    HEADLESS = "a kernel driven by a program: nbconvert, papermill"

    @property
    def is_kernel(self) -> bool:
        """Whether outputs are messages that can be updated later."""
        return self in (Frontend.NOTEBOOK, Frontend.HEADLESS)


def shell() -> Any | None:
    """The running IPython shell, if there is one."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def frontend() -> Frontend:
    """The frontend of the cell that runs now."""
    here = shell()
    if here is None:
        return Frontend.SCRIPT
    kernel = getattr(here, "kernel", None)
    if kernel is None:
        return Frontend.TERMINAL
    # A program that runs notebooks says with each cell that nobody can be asked for input (nbclient 0.11 and before).
    return Frontend.NOTEBOOK if getattr(kernel, "_allow_stdin", True) else Frontend.HEADLESS


def has_ipywidgets() -> bool:
    """Whether a widget can be made here."""
    return find_spec("ipywidgets") is not None


def shows_widgets() -> bool:
    """Whether the cell's page is known to show widgets, and a person is in front of it; others may, or may not.

    JupyterLab 4 and Notebook 7 name the cell in the metadata of each request.
    """
    if frontend() is not Frontend.NOTEBOOK or not has_ipywidgets():
        return False
    here = shell()
    assert here is not None
    parent = here.kernel.get_parent("shell")
    return "cellId" in (parent.get("metadata") or {})
