"""Checks that look at files, data, GPUs and environments; the last word before a process starts."""

from kernel_launcher.preflight.look import look_at
from kernel_launcher.preflight.prepare import Prepared, prepare

__all__ = ["Prepared", "look_at", "prepare"]
