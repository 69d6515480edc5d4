"""Is a launcher alive? Real processes, real locks, real kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import psutil
import pytest

from kernel_launcher.protocol import liveness
from kernel_launcher.protocol.files import now, read_json, write_json
from kernel_launcher.protocol.liveness import LauncherLock, find_process, identity, is_alive
from kernel_launcher.protocol.paths import RunDir

HOLD = """
import sys, time
from pathlib import Path
from kernel_launcher.protocol.liveness import LauncherLock
from kernel_launcher.protocol.paths import RunDir
lock = LauncherLock(RunDir(Path(sys.argv[1])))
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def run(tmp_path):
    folder = RunDir(tmp_path / "run")
    folder.create()
    return folder


@pytest.fixture
def holder(run):
    """A process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-P", "-c", HOLD, str(run.root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "held\n" == process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_launcher_lives_as_long_as_it_holds_its_lock(run, holder):
    """Alive while the process is there; gone with it, also when it is killed where it stands."""
    assert is_alive(run)
    assert holder.pid == read_json(run.lock)["pid"]
    holder.send_signal(signal.SIGSTOP)
    assert is_alive(run)
    holder.kill()
    holder.wait()
    assert not is_alive(run)
    assert find_process(read_json(run.lock)) is None


def test_without_a_lock_nobody_lives(run):
    """No lock file, or one that nobody holds, is no launcher; looking creates nothing."""
    assert not is_alive(run)
    assert not run.lock.exists()
    run.lock.write_text("{}")
    assert not is_alive(run)


def test_a_second_launcher_is_turned_away(run, holder):
    """Two launchers cannot run one job; the file still names the first."""
    with pytest.raises(BlockingIOError):
        LauncherLock(run)
    assert holder.pid == read_json(run.lock)["pid"]
    assert is_alive(run)


def test_those_who_look_do_not_keep_a_launcher_out(run):
    """Ranks and notebooks probe the lock all the time; a launcher that starts meanwhile gets it."""
    over = threading.Event()

    def look():
        while not over.is_set():
            is_alive(run)

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(10):
            lock = LauncherLock(run)
            assert is_alive(run)
            os.close(lock._file)
    finally:
        over.set()
        for looker in lookers:
            looker.join()


def test_a_lock_is_not_inherited_by_children(run):
    """A rank that outlives its launcher must not keep the launcher's lock alive."""
    code = HOLD.replace(
        "time.sleep(600)", "import subprocess; subprocess.Popen(['sleep', '60'], stdout=2); print('x', flush=True)"
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code, str(run.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.communicate()
    try:
        assert not is_alive(run)
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_a_process_is_found_by_more_than_its_number():
    """This process is found; one with its number and another birth, host or no data at all is not."""
    me = identity()
    found = find_process(me)
    assert found is not None
    assert os.getpid() == found.pid
    strangers = [
        me | {"pid_created": float(me["pid_created"]) - 60},
        me | {"host": "elsewhere"},
        me | {"pid": 2**22 + 5},
        me | {"pid": -1},
        me | {"pid": 10**30},
        me | {"pid": "x"},
        {"host": me["host"]},
        {},
        None,
        [],
    ]
    assert [None] * len(strangers) == [find_process(who) for who in strangers]


def test_a_zombie_is_not_found():
    """A process that has ended and was not waited for is no process to talk to."""
    child = subprocess.Popen(["sleep", "600"])
    who = identity() | {"pid": child.pid, "pid_created": psutil.Process(child.pid).create_time()}
    assert find_process(who) is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert find_process(who) is None
    child.wait()


@pytest.fixture
def on_nfs(run, monkeypatch):
    """The run folder is on NFS, where a lock is free although somebody holds it."""
    mounts = [
        SimpleNamespace(mountpoint="/", fstype="ext4"),
        SimpleNamespace(mountpoint=str(run.root.parent), fstype="nfs4"),
    ]
    monkeypatch.setattr(liveness.psutil, "disk_partitions", lambda **_: mounts)
    return run


def test_on_a_network_file_system_the_host_and_the_heartbeat_decide(on_nfs):
    """On this host the process that the file names; of another host, how old its last sign of life is."""
    assert not is_alive(on_nfs)
    write_json(on_nfs.lock, identity())
    assert is_alive(on_nfs)
    write_json(on_nfs.lock, identity() | {"pid_created": 5.0})
    assert not is_alive(on_nfs)
    write_json(on_nfs.lock, identity() | {"host": "elsewhere"})
    assert not is_alive(on_nfs)
    write_json(on_nfs.status, {"heartbeat_at": now()})
    assert is_alive(on_nfs)
    write_json(on_nfs.status, {"heartbeat_at": "2026-01-01T00:00:00.000Z"})
    assert not is_alive(on_nfs)


@pytest.mark.parametrize(
    ("fstype", "network"),
    [
        ("nfs", True),
        ("nfs4", True),
        ("cifs", True),
        ("lustre", True),
        ("fuse.sshfs", True),
        ("fuseblk", False),
        ("ext4", False),
    ],
)
def test_file_systems_whose_locks_lie(fstype, network, tmp_path, monkeypatch):
    """The mount that a path lies on decides, the nearest one and the last one there."""
    mounts = [("/", "nfs"), (str(tmp_path), "nfs"), (str(tmp_path), fstype)]
    found = [SimpleNamespace(mountpoint=point, fstype=kind) for point, kind in mounts]
    monkeypatch.setattr(liveness.psutil, "disk_partitions", lambda **_: found)
    assert network == liveness.on_network_file_system(tmp_path / "a" / "b")
