"""From an exception to a failure code and a record."""

from __future__ import annotations

import errno

import pytest

from kernel_launcher.errors import VeriError
from kernel_launcher.worker.assignment import Rank
from kernel_launcher.worker.errors import ModelLoadError
from kernel_launcher.worker.failures import code_of, record_of

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
