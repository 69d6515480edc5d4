"""What is wrong or suspicious about a data set: every kind of finding in ``catalogue``, the pass in ``linter``."""

from kernel_launcher.data.lint.finding import Finding
from kernel_launcher.data.lint.linter import Linter, WordLinter, lint_rows
from kernel_launcher.data.lint.refuse import RunLinter, not_allowed, refuse_errors
from kernel_launcher.data.lint.repeats import HeldOut
from kernel_launcher.data.lint.tokens import ModelTokens

__all__ = [
    "Finding",
    "HeldOut",
    "Linter",
    "ModelTokens",
    "RunLinter",
    "WordLinter",
    "lint_rows",
    "not_allowed",
    "refuse_errors",
]
