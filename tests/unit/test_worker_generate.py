"""The process that answers holds a GPU: it never outlives whoever asked."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

END_WITH_CALLER = "from kernel_launcher.worker.generate import end_with_caller; end_with_caller(); "

CALLER = f"""
import subprocess, sys, time
then = {END_WITH_CALLER!r} + "print('ready', flush=True); import time; time.sleep(600)"
child = subprocess.Popen([sys.executable, "-P", "-c", then], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def test_it_ends_when_its_caller_is_killed() -> None:
    """A kernel that is killed with SIGKILL closes nothing and says nothing."""
    with subprocess.Popen([sys.executable, "-P", "-c", CALLER], stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        child = psutil.Process(int(caller.stdout.readline()))
        caller.kill()
    gone, _ = psutil.wait_procs([child], timeout=20)
    assert [child] == gone


def test_it_does_not_begin_when_its_caller_has_gone_already() -> None:
    """The caller may die while this process starts, before it can ask to be told."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-P", "-c", f"{END_WITH_CALLER} import sys; sys.exit(9)"]
    assert 1 == subprocess.run(command, stdout=writes, check=False).returncode
    os.close(writes)
    assert 9 == subprocess.run(command, stdout=subprocess.PIPE, check=False).returncode
