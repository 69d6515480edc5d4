"""Ending what a job has left: real processes, and never a stranger."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from kernel_launcher.launcher import reap
from kernel_launcher.protocol.fold import JobView, RankView
from kernel_launcher.protocol.liveness import identity

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {DEAF!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def spawn():
    """Processes that are gone at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> tuple[psutil.Process, str]:
        process = subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return psutil.Process(process.pid), process.stdout.readline().strip()

    yield start
    for process in started:
        for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []:
            child.kill()
        process.kill()
        process.communicate()


def who(process: psutil.Process) -> dict[str, object]:
    return identity() | {"pid": process.pid, "pid_created": process.create_time()}


def test_who_listens_is_asked_and_who_does_not_is_made_to(spawn):
    """SIGTERM, some time, then SIGKILL: nothing is left of either, and nothing is reported as stuck."""
    polite, _ = spawn("import time; print('on', flush=True); time.sleep(600)")
    deaf, _ = spawn(DEAF)
    assert [] == reap.end([polite], grace_seconds=30)
    assert -signal.SIGTERM == polite.wait()
    assert [] == reap.end([deaf], grace_seconds=0.2)
    assert -signal.SIGKILL == deaf.wait()


def test_ending_what_has_ended_is_no_error(spawn):
    """A process that is gone already, reaped or not, is left out."""
    gone, _ = spawn("print('on', flush=True)")
    zombie, _ = spawn("print('on', flush=True); import time; time.sleep(600)")
    os.kill(zombie.pid, signal.SIGKILL)
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert [] == reap.end([gone, zombie], grace_seconds=0.1)
    assert [] == reap.end([])


def test_a_ranks_data_workers_go_with_it(spawn):
    """The ranks that a job's events name are found with everything below them."""
    rank, worker_pid = spawn(PARENT)
    view = JobView(ranks={0: RankView(process=who(rank)), 1: RankView(), 2: RankView(process={"pid": 1})})
    found = reap.rank_processes(view)
    assert {rank.pid, int(worker_pid)} == {process.pid for process in found}
    assert [] == reap.end(found)
    assert not psutil.pid_exists(int(worker_pid)) or psutil.Process(int(worker_pid)).status() == psutil.STATUS_ZOMBIE


def test_a_stranger_with_a_ranks_number_is_left_alone(spawn):
    """A process that merely got the number of a rank that is long gone is not touched."""
    stranger, _ = spawn("import time; print('on', flush=True); time.sleep(600)")
    recycled = who(stranger) | {"pid_created": stranger.create_time() - 100}
    assert [] == reap.rank_processes(JobView(ranks={0: RankView(process=recycled)}))
    assert stranger.is_running()


ADOPT = """
import subprocess, sys, time
import psutil
from kernel_launcher.launcher import reap
reap.adopt_orphans()
middle = subprocess.Popen([sys.executable, "-c", '''
import subprocess
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
'''])
middle.wait()
found = reap.children()
print([p.name() for p in found], reap.end(found), reap.children())
"""


def test_orphans_are_adopted_and_ended():
    """What a dead rank leaves behind becomes the launcher's own child, and goes with it."""
    done = subprocess.run([sys.executable, "-P", "-c", ADOPT], capture_output=True, text=True, check=True)
    assert "['sleep'] [] []\n" == done.stdout
