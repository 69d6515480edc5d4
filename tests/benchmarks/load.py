"""Seconds that ``%load_ext veri_jupyter`` takes in a fresh IPython."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.benchmarks.figures import line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CODE = """
import time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
start = time.perf_counter()
shell.run_line_magic("load_ext", "veri_jupyter")
print(time.perf_counter() - start)
"""


def run(_: Path, pairs: int) -> Iterator[str]:
    """Load it in a fresh process, several times."""
    command = [sys.executable, "-c", CODE]
    subprocess.run(command, check=True, capture_output=True)  # byte code is compiled once, at the first import
    times = [float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(pairs)]
    yield line("%load_ext veri_jupyter", times, "s", "<= 0.3")
