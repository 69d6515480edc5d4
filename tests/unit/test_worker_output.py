"""What a rank prints stays on disk, so it holds no secret."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kernel_launcher.worker.output import RedactedStream

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "hf_abcdefghijklmnop"

# Each way in which Python code prints; the last is a thread that nobody catches.
PRINT = """
import logging, os, sys, threading, warnings
from kernel_launcher.worker.output import redact_output
redact_output()
token = os.environ["HF_TOKEN"]
print("print", token, flush=True)
print("in pieces", end=" ")
print(token)
sys.stdout.writelines(["lines\\n", f"{token}\\n"])
logging.warning("logging %s", token)
warnings.warn(f"warnings {token}")
assert (1, 2) == (sys.stdout.fileno(), sys.stderr.fileno())
def fail():
    raise ValueError(f"raised {token}")
threading.Thread(target=fail).start()
"""


def test_python_code_prints_no_token() -> None:
    """Whatever it prints with, and all else of it is there."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", PRINT], env={"HF_TOKEN": TOKEN}, capture_output=True, text=True, check=True
    )
    assert "print ***\nin pieces ***\nlines\n***\n" == done.stdout
    for line in ("WARNING:root:logging ***", "UserWarning: warnings ***", "ValueError: raised ***"):
        assert line in done.stderr
    assert TOKEN not in done.stderr


def test_a_redacted_stream_is_the_stream_in_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries ask for its encoding, its file, and whether it is a terminal."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with (tmp_path / "log").open("w", encoding="utf-8") as file:
        stream = RedactedStream(file)
        assert len(f"é {TOKEN}") == stream.write(f"é {TOKEN}")
        stream.flush()
        assert ("utf-8", file.fileno(), False) == (stream.encoding, stream.fileno(), stream.isatty())
    assert "é ***" == (tmp_path / "log").read_text(encoding="utf-8")
    with pytest.raises(io.UnsupportedOperation):
        RedactedStream(io.StringIO()).fileno()
