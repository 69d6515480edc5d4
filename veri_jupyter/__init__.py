"""veri-jupyter in a notebook: plan a fine-tune, train in the background, watch it.

``%load_ext veri_jupyter`` brings the magics (``%%veri_train --help``); the functions behind them are here. The names
mean that training is launched *from* a Jupyter kernel: neither this package nor ``kernel_launcher`` starts a kernel.

Importing this is cheap: each public name is fetched from its module when it is first used.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernel_launcher import __version__
from veri_jupyter import not_yet

if TYPE_CHECKING:
    from kernel_launcher.errors import InvalidRequest, JobFailed, JobNotFound, LaunchFailed, VeriError
    from veri_jupyter.api import attach, compare, explore, jobs, plan, sample, stop, train
    from veri_jupyter.client import Client
    from veri_jupyter.data.shown import show_data
    from veri_jupyter.job import Job

_HOMES = {
    "veri_jupyter.api": ("attach", "compare", "explore", "jobs", "plan", "sample", "stop", "train"),
    "veri_jupyter.client": ("Client",),
    "veri_jupyter.data.shown": ("show_data",),
    "veri_jupyter.job": ("Job",),
    "kernel_launcher.errors": ("InvalidRequest", "JobFailed", "JobNotFound", "LaunchFailed", "VeriError"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Client",
    "InvalidRequest",
    "Job",
    "JobFailed",
    "JobNotFound",
    "LaunchFailed",
    "VeriError",
    "__version__",
    "attach",
    "compare",
    "explore",
    "jobs",
    "plan",
    "sample",
    "show_data",
    "stop",
    "train",
]

# Without a handler, Python prints what the drawing thread logs into whichever cell runs.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in not_yet.FUNCTIONS:
        not_yet.refuse(f"veri_jupyter.{name}", not_yet.FUNCTIONS[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(shell: Any) -> None:
    """Add the magics and their completion."""
    from veri_jupyter import completion, magics

    magics.load(shell)
    completion.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take away all that loading added; jobs go on."""
    from veri_jupyter import completion, magics

    magics.unload(shell)
    completion.unload(shell)
    if "veri_jupyter.monitor.show" in sys.modules:
        from veri_jupyter.monitor.show import pump

        pump.close()
