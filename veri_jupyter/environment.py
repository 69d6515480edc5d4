"""The one place that asks where this code runs: which frontend, and whether somebody sits in front of it."""

from __future__ import annotations

import os
import sys
from enum import Enum
from importlib.util import find_spec
from typing import Any

DISPLAYS = ("auto", "widget", "static")


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


def has_live_widgets() -> bool:
    """Whether widgets will be drawn: only where a frontend is positively known, and its packages are here.

    Elsewhere a widget is megabytes that nobody sees: a program that runs notebooks writes them into the file.
    """
    if frontend() is not Frontend.NOTEBOOK or not has_widgets():
        return False
    # Jupyter Server names the notebook of a kernel that a person opened; VS Code puts its file among the variables.
    return "JPY_SESSION_NAME" in os.environ or "__vsc_ipynb_file__" in getattr(shell(), "user_ns", {})


def has_widgets() -> bool:
    """Whether the packages are here: the ``notebook`` extra."""
    return all(find_spec(name) is not None for name in ("ipywidgets", "anywidget", "plotly"))


def hear_while_busy(widget: Any) -> None:
    """Let a widget's clicks come in while a cell is busy.

    JupyterLab sends them to a subshell for that. ipykernel 7.4 overrules it and takes the shell that the widget was
    last written from; for what a thread writes that is the main one. 7.3 does as the frontend asks.
    """
    if widget.comm is not None:
        widget.comm._reply_subshell_for = None  # noqa: SLF001 -- there is no public way


def cell_run() -> tuple[str, str]:
    """The cell that runs now, by JupyterLab's or VS Code's name for it (others give none), and which run of it."""
    kernel = getattr(shell(), "kernel", None)
    parent = (kernel.get_parent() if kernel is not None else None) or {}
    return str(parent.get("metadata", {}).get("cellId", "")), str(parent.get("header", {}).get("msg_id", ""))
