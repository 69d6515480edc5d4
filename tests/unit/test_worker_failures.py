"""From an exception to a failure code and a record."""

from __future__ import annotations

import errno
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from kernel_launcher.errors import VeriError
from kernel_launcher.protocol.failure import EXIT_DISK_FULL, RankRecord
from kernel_launcher.protocol.paths import RankDir
from kernel_launcher.worker.__main__ import _leave
from kernel_launcher.worker.assignment import Rank
from kernel_launcher.worker.errors import ModelLoadError
from kernel_launcher.worker.failures import code_of, record_of

if TYPE_CHECKING:
    from pathlib import Path

RANK = Rank(rank=1, local_rank=1, world_size=2, attempt=0)


@pytest.mark.parametrize(
    ("expected", "error"),
    [
        ("model_load_error", ModelLoadError("no such model")),
        ("empty_labels", VeriError("empty_labels", "nothing left")),
        ("user_exit", SystemExit(3)),
        ("dependency_error", ModuleNotFoundError("No module named 'x'")),
        ("dependency_error", RuntimeError("CUDA error: no kernel image is available for execution on the device")),
        ("host_oom", MemoryError()),
        ("host_oom", RuntimeError("[enforce fail at alloc_cpu.cpp] . DefaultCPUAllocator: can't allocate memory")),
        ("disk_full", OSError(errno.ENOSPC, "No space left on device")),
        ("disk_full", OSError(errno.EDQUOT, "Disk quota exceeded")),
        ("disk_full", Exception("I/O error: No space left on device (os error 28)")),
        ("killed_externally", RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")),
        ("killed_externally", RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly")),
        ("native_crash", RuntimeError("DataLoader worker (pid 7) is killed by signal: Segmentation fault. ")),
        (
            "shm_exhausted",
            RuntimeError(
                "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers "
                "are out of shared memory."
            ),
        ),
        (None, ValueError("anything else")),
        (None, OSError(errno.ENOENT, "No such file")),
        (None, RuntimeError("[gloo] Connection closed by peer [127.0.0.1]:4242")),
    ],
)
def test_an_exception_has_a_code_where_the_rank_knows_it(expected: str | None, error: BaseException) -> None:
    """What only says that another rank has gone has none: it is never the cause."""
    assert expected == code_of(error)


def test_the_cause_counts() -> None:
    """A library that wraps an error in its own does not hide it."""
    error = RuntimeError("could not save")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert "disk_full" == code_of(error)


DEATH = """
import sys
from torch.utils.data import DataLoader
from kernel_launcher.worker.failures import code_of, settled

loader = iter(DataLoader(range(9), num_workers=1))
next(loader)
error = eval(sys.argv[1])
found = settled(error) if sys.argv[2] == "alive" else error
if sys.argv[2] == "dead":
    # As it happens: the connection is broken, and the signal is still on its way.
    import signal, threading
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    threading.Timer(0.1, loader._workers[0].kill).start()
    found = settled(error)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
print(code_of(found), found.__cause__ is error)
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("error", "worker", "expected"),
    [
        ("ConnectionResetError(104, 'Connection reset by peer')", "dead", "killed_externally True"),
        ("FileNotFoundError(2, 'No such file')", "dead", "killed_externally True"),
        ("EOFError()", "dead", "killed_externally True"),
        ("ConnectionResetError(104, 'Connection reset by peer')", "alive", "None False"),
        ("OSError(28, 'No space left on device')", "alive", "disk_full False"),
    ],
)
def test_a_broken_connection_to_a_dead_data_worker_is_its_death(error: str, worker: str, expected: str) -> None:
    """Also when the parent hears of it later, and never in the middle of what is then done about the error."""
    done = subprocess.run([sys.executable, "-c", DEATH, error, worker], capture_output=True, text=True, check=False)
    assert (f"{expected}\n", 0) == (done.stdout, done.returncode), done.stderr


@pytest.mark.torch
def test_a_gpu_out_of_memory_is_told_from_the_host() -> None:
    """They need different remedies."""
    import torch

    assert "oom" == code_of(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))


def test_a_record_says_where_the_rank_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no token of it: neither in the text nor in the traceback."""
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    with pytest.raises(ValueError, match="with") as raised:
        raise ValueError("with hf_abcdefghijklmnop")
    record = record_of(raised.value, RANK, phase="train", step=7)
    assert (1, 2, "train", 7, "ValueError") == (
        record.rank,
        record.world_size,
        record.phase,
        record.step,
        record.exception,
    )
    assert "with ***" == record.text
    assert "hf_abcdefghijklmnop" not in record.traceback
    assert "test_a_record_says_where_the_rank_was" in record.traceback


def test_an_exit_in_somebody_elses_code_is_told_as_such() -> None:
    """Its code is all that it says."""
    assert "exit code 3" == record_of(SystemExit(3), RANK, phase="load", step=0).text


@pytest.mark.parametrize(
    "text",
    [
        "y" * 200_000,
        "line\n" * 100_000,
        "\x1b[31mred\x1b[0m\r\x00\x07" * 20_000,
        "y" * 1_990 + " hf_abcdefghijklmnop and more",
        "y\n" * 4_996 + "hf_abcdefghijklmnop" + "\nz" * 20_000,
        "hf_abcd\x1b[1mefghijklmnop",
    ],
)
def test_a_record_is_short_plain_text_whatever_was_raised(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line and no text without an end, no colours, no part of a token; and still where it was raised."""
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    with pytest.raises(RuntimeError) as raised:
        raise RuntimeError(text)
    record = record_of(raised.value, RANK, phase="train", step=7)
    for written in (record.text, record.traceback):
        assert len(written) < 20_100
        assert all(len(line) <= 2_000 for line in written.split("\n"))
        assert written.replace("\n", "").isprintable()
        assert "hf_" not in written
        assert "[31m" not in written
    assert "test_a_record_is_short_plain_text" in record.traceback


@pytest.mark.parametrize(
    ("expected", "error"),
    [
        (EXIT_DISK_FULL, OSError(errno.ENOSPC, "No space left on device")),
        (EXIT_DISK_FULL, OSError(errno.EDQUOT, "Disk quota exceeded")),
        (1, OSError(errno.EACCES, "Permission denied")),
        (1, None),
    ],
)
def test_a_disk_too_full_for_the_record_is_told_by_the_exit_code(
    expected: int, error: OSError | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log lies on the same disk: that it takes nothing either changes nothing."""
    record = record_of(RuntimeError("lost"), RANK, phase="train", step=7)

    def write(self: RankRecord, path: Path) -> None:
        if error is not None:
            raise error

    def write_log(text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RankRecord, "write", write)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=write_log))
    assert expected == _leave(record, RankDir(tmp_path))


def test_an_exception_that_cannot_say_what_it_is_leaves_a_record() -> None:
    """Its class and where it was raised are known all the same."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise AttributeError("shape")

    with pytest.raises(Mute) as raised:
        raise Mute
    record = record_of(raised.value, RANK, phase="train", step=7)
    assert (None, "Mute") == (record.code, record.exception)
    assert "test_an_exception_that_cannot_say" in record.traceback
