"""A cell trains a real model, from the first line to the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kernel_launcher.protocol import index

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Sample
    from tests.kernel.kernels import Kernel

pytestmark = pytest.mark.torch

CELL = """%%veri_train --gpus 1 --gpu-type CPU -o job {options}
[model]
base = "{sample.tiny}"
[dataset]
id = "{sample.sft}"
[method]
lora_rank = 4
max_steps = {steps}
max_seq_length = 64
"""


@pytest.fixture
def endless(kernel: Kernel, sample: Sample) -> Iterator[str]:
    """A job that runs until it is stopped; its name."""
    kernel.run(CELL.format(sample=sample, steps=100_000, options="--name endless --display none"))
    yield "endless"
    kernel.run("%veri_stop endless --now")


def test_from_the_cell_to_the_model(kernel: Kernel, sample: Sample, folder: Path) -> None:
    """The cell says what was decided and where it runs; its summary goes on to the end."""
    reply = kernel.run(CELL.format(sample=sample, steps=4, options="--name first"))
    assert "ok" == reply.status
    lines = reply.stdout.splitlines()
    assert "default: learning_rate = 0.0002: usual for a LoRA adapter." in lines
    assert any(line.startswith("plan: dp=1 ") for line in lines)
    assert f"run folder: {folder}/runs/first" == lines[-1]
    assert 2 == len(reply.shown), "a summary and a chart"

    waited = kernel.run("print(job.final_dir)")
    assert waited.stdout.endswith(f"{folder}/runs/first/final\n")
    (ended,) = (update["text/plain"] for update in waited.updates[-2:] if "Done in" in update["text/plain"])
    assert "4 steps" in ended

    looked = kernel.run("print(job.status, [row['step'] for row in job.metrics(['loss'], from_step=2)], job.error)")
    assert "completed [2, 3, 4] None\n" == looked.stdout

    again = kernel.run(CELL.format(sample=sample, steps=4, options="--name first"))
    assert "This job is done already; nothing was started." in again.stdout
    assert 1 == len(index.entries())


def test_a_running_job_is_found_again_and_stopped(kernel: Kernel, sample: Sample, endless: str) -> None:
    """The same cell attaches; another one of that name is refused; stop ends it."""
    same = kernel.run(CELL.format(sample=sample, steps=100_000, options=f"--name {endless}"))
    assert "This job runs already; nothing was started." in same.stdout
    other = kernel.run(CELL.format(sample=sample, steps=99, options=f"--name {endless}"))
    assert "InvalidRequest" == other.ename
    stopped = kernel.run(f"%veri_stop {endless}").stdout
    assert stopped.startswith(f"■ cancelled {endless} · Stopped at step ")


def test_a_dry_run_plans_and_starts_nothing(kernel: Kernel, sample: Sample) -> None:
    """--dry-run gives the plan."""
    before = index.entries()
    reply = kernel.run(CELL.format(sample=sample, steps=4, options="--dry-run"))
    (plan,) = reply.shown
    assert "plan: dp=1 " in plan["text/plain"]
    assert "aria-label" in plan["text/html"]
    assert before == index.entries()
    assert "4\n" == kernel.run("print(job.method.max_steps)").stdout


def test_rows_of_the_notebook_and_an_interrupted_wait(kernel: Kernel, sample: Sample) -> None:
    """The function does what the cell does, with rows from a variable; an interrupted wait detaches."""
    call = (
        f"veri_jupyter.train('{sample.tiny}', rows, prompt='question', completion='answer', lora_rank=4, gpus=1, "
        "gpu_type='CPU', max_steps=100_000, max_seq_length=64, name='rows')"
    )
    kernel.run("import veri_jupyter\nrows = [{'question': 'a', 'answer': 'b'}] * 8")
    kernel.begin(f"job = {call}\njob.wait()", until="running rows")
    assert "Detached" == kernel.interrupt().ename
    assert "running\n" == kernel.run("print(job.status)").stdout
    kernel.run("job.stop(now=True)")


def test_a_waiting_cell_has_given_its_job_away(kernel: Kernel, sample: Sample) -> None:
    """--wait and -o: whoever interrupts the cell, or meets a failure, has the job to look at."""
    kernel.run("job = None")
    cell = CELL.format(sample=sample, steps=100_000, options="--name waited --wait")
    kernel.begin(cell, until="provisioning waited")
    assert "Detached" == kernel.interrupt().ename
    assert "cancelled\n" == kernel.run("print(job.stop(now=True))").stdout
