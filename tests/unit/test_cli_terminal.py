"""The command line beside a terminal, a file and a pipe, and as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kernel_launcher.__main__ import _Line
from tests.unit.toys import run_folder


class Terminal:
    """A screen that remembers what was written."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.text = ""
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def test_a_line_is_written_over_on_a_terminal_and_never_wraps(monkeypatch):
    """A line that is wider than the screen would leave its upper half behind at each look."""
    monkeypatch.setenv("COLUMNS", "20")
    screen = Terminal(is_terminal=True)
    line = _Line(screen)
    for text in ("a" * 50, "b", "b"):
        line.show(text)
    line.end()
    assert "\r\x1b[2K" + "a" * 19 + "\r\x1b[2Kb\n" == screen.text


def test_in_a_file_a_line_is_whole_and_comes_now_and_then():
    """A log of a run is not filled with a line for each look."""
    file = Terminal(is_terminal=False)
    line = _Line(file)
    for number in range(100):
        line.show(f"{number} " + "x" * 300)
    line.end()
    assert f"0 {'x' * 300}\n" == file.text


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone_is_no_error(unbuffered, tmp_path, monkeypatch):
    """``veri-jupyter jobs | head -1`` ends quietly, whether Python meets the end while writing or at its own."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    run_folder(tmp_path / "run", "run", created_at="2026-01-01T00:00:00.000Z")
    command = [sys.executable, "-P", "-m", "kernel_launcher", "jobs", "--json"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (0, b"") == (done.returncode, done.stderr)


def test_the_command_is_a_command_without_torch():
    """As a process of its own: output, exit code, and no torch for a look at the jobs."""
    code = """
import sys
from kernel_launcher.__main__ import main
sys.exit(main(["jobs", "--json"]) or "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout
