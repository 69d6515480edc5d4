"""IPython in a terminal: text instead of HTML, and one line that follows the job."""

from __future__ import annotations

import os
import re
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING

import pexpect
import pytest

from tests.kernel.fakes import FakeJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROMPT = r"In \[\d+\]: "


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[pexpect.spawn]:
    options = ["--simple-prompt", "--no-banner", "--colors=NoColor", "--ext=veri_jupyter"]
    child = pexpect.spawn(
        sys.executable,
        ["-m", "IPython", *options],
        cwd=str(tmp_path),
        env={**os.environ, "TERM": "dumb", "IPYTHONDIR": str(tmp_path / "ipython")},
        encoding="utf-8",
        timeout=60,
        dimensions=(50, 160),
        # Where the tests run in the background of a shell, it would inherit that Ctrl-C is ignored.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    child.expect(PROMPT)
    yield child
    child.close(force=True)


def say(terminal: pexpect.spawn, line: str) -> str:
    terminal.sendline(line)
    terminal.expect(PROMPT)
    return str(terminal.before)


def test_a_job_is_shown_once_and_followed_on_one_line(terminal: pexpect.spawn, tmp_path: Path) -> None:
    """Attach prints the summary; a wait follows in place, and ends with the end; errors are short."""
    job = FakeJob(tmp_path / "run", "seen")
    job.status("running")
    job.step(3)
    printed = say(terminal, "%veri_attach seen")
    assert "● running seen: Step 3 of 30" in printed
    assert "if this stands still: %veri_attach seen-20250101-101010-ab12" in printed

    say(terminal, "import veri_jupyter; job = veri_jupyter.attach('seen')")
    terminal.sendline("job.wait()")
    terminal.expect_exact("● running seen · Step 3 of 30")
    terminal.sendintr()  # once: wherever it falls, it counts
    terminal.expect(PROMPT)
    assert "Detached" in terminal.before
    assert "%veri_attach seen-20250101-101010-ab12" in terminal.before
    assert "Traceback" not in terminal.before

    terminal.sendline("job.final_dir")
    terminal.expect_exact("● running seen · Step 3 of 30")
    job.status("completed")
    terminal.expect(PROMPT)
    assert re.search(r"✓ completed seen: Done in .*\n  loss 3.100 → 3.100", terminal.before.replace("\r", ""))

    assert "completed" not in say(terminal, "job.final_dir")

    refused = say(terminal, "%veri_attach nobody")
    assert "JobNotFound" in refused
    assert "Traceback" not in refused
