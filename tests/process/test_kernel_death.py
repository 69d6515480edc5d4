"""What happens to the kernel that started a job does not happen to the job."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jupyter_client.manager import KernelManager

from kernel_launcher.launcher import client
from tests.process import jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_client.blocking.client import BlockingKernelClient

    from tests.conftest import Sample

CELL = """
import veri_jupyter
job = veri_jupyter.train({model!r}, {data!r}, lora_rank=4, max_seq_length=64, gpu_type="CPU", gpus=1,
                         max_steps=100_000, name={name!r})
print(job.id)
"""


def run(kernel: BlockingKernelClient, code: str) -> str:
    """What a cell prints."""
    printed: list[str] = []

    def hear(message: dict) -> None:  # type: ignore[type-arg]
        content = message["content"]
        if message["msg_type"] == "stream":
            printed.append(content["text"])
        elif message["msg_type"] == "error":
            printed.append("\n".join(content["traceback"]))

    reply = kernel.execute_interactive(code, output_hook=hear, timeout=120)
    assert "ok" == reply["content"]["status"], "".join(printed)
    return "".join(printed)


@contextmanager
def started(folder: Path) -> Iterator[KernelManager]:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(folder))
    yield manager
    if manager.is_alive():
        manager.shutdown_kernel(now=True)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[KernelManager]:
    with started(tmp_path) as kernel_manager:
        yield kernel_manager


def connect(manager: KernelManager) -> BlockingKernelClient:
    kernel = manager.client()
    kernel.start_channels()
    kernel.wait_for_ready(timeout=60)
    return kernel


def interrupt(manager: KernelManager) -> None:
    manager.interrupt_kernel()


def restart(manager: KernelManager) -> None:
    manager.restart_kernel()


def shutdown(manager: KernelManager) -> None:
    manager.shutdown_kernel()


def kill(manager: KernelManager) -> None:
    manager.signal_kernel(signal.SIGKILL)


# The hardest death stands for the others in the short run.
CASES = [kill, *(pytest.param(happening, marks=pytest.mark.matrix) for happening in (interrupt, restart, shutdown))]


@pytest.mark.parametrize("happening", CASES, ids=lambda f: f.__name__)
def test_a_job_outlives_its_kernel(
    tmp_path: Path, manager: KernelManager, sample: Sample, happening: Callable[[KernelManager], None]
) -> None:
    """Interrupt, restart, shutdown and kill -9 of the kernel leave the job running, and it can be attached again."""
    kernel = connect(manager)
    cell = CELL.format(model=str(sample.tiny), data=str(sample.sft), name=happening.__name__)
    entry = client.find(run(kernel, cell).strip().splitlines()[-1])
    kernel.stop_channels()
    happening(manager)
    time.sleep(1)

    before = jobs.wait_until(entry, lambda view: view.step >= 2).step
    jobs.wait_until(entry, lambda view: view.step > before)
    with nullcontext(manager) if manager.is_alive() else started(tmp_path) as after:
        kernel = connect(after)
        shown = run(kernel, f"import veri_jupyter; print(veri_jupyter.attach({entry.name!r}).status)")
        assert "running" == shown.strip()
        run(kernel, "veri_jupyter.stop('last')")
        kernel.stop_channels()
    assert [] == jobs.left_after(entry, 30)


def test_the_job_has_nothing_of_the_kernel(manager: KernelManager, sample: Sample) -> None:
    """Session, pipes and environment of the launcher are its own."""
    kernel = connect(manager)
    cell = CELL.format(model=str(sample.tiny), data=str(sample.sft), name="apart")
    entry = client.find(run(kernel, cell).strip().splitlines()[-1])
    kernel.stop_channels()
    launcher = jobs.launcher(entry)
    environment = launcher.environ()
    session = os.getsid(launcher.pid)
    pipes = [str(Path(f"/proc/{launcher.pid}/fd/{number}").readlink()) for number in (0, 1, 2)]
    client.stop(entry, now=True)
    assert launcher.pid == session
    assert ["/dev/null", str(entry.run.launcher_log), str(entry.run.launcher_log)] == pipes
    assert not [name for name in environment if name.startswith("JPY_") or name == "MPLBACKEND"]
