"""Bad input: one clear error in the cell, before a process starts, and nothing left behind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kernel_launcher.protocol import index
from tests.kernel.fakes import FakeJob

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Sample
    from tests.kernel.kernels import Kernel

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz012345"

REFUSED = {
    "no such model": ("%veri_train ./nothing --data rows", "InvalidRequest", "nothing: there is no such folder"),
    "no such variable": ("%veri_train {tiny} --data rowz", "UsageError", "Did you mean rows?"),
    "no data": ("%veri_train {tiny}", "InvalidRequest", "no data"),
    "no such file": ("%veri_train {tiny} --set dataset.id=./nothing.jsonl", "InvalidRequest", "nothing.jsonl"),
    "empty file": ("%veri_train {tiny} --set dataset.id=./empty.jsonl", "InvalidRequest", "empty.jsonl"),
    "broken file": ("%veri_train {tiny} --set dataset.id=./broken.jsonl", "InvalidRequest", "broken.jsonl"),
    "a row that fits no format": ("%veri_train {tiny} --data strange", "InvalidRequest", "row"),
    "more ranks than cores": (
        "%veri_train {tiny} --data rows --gpu-type CPU --gpus {over}",
        "InvalidRequest",
        "resources.gpu_count",
    ),
    "no number of GPUs": ("%veri_train {tiny} --data rows --gpus many", "InvalidRequest", "gpus"),
    "unknown option": ("%veri_train {tiny} --data rows --gpu 2", "UsageError", "Did you mean --gpus?"),
    "unknown setting": ("%veri_train {tiny} --data rows --set lora_rnk=8", "InvalidRequest", "method.lora_rank"),
    "not KEY=VALUE": ("%veri_train {tiny} --data rows --set lora_rank", "InvalidRequest", "--set lora_rank=8"),
    "bad name": ("%veri_train {tiny} --data rows --name ../up", "InvalidRequest", "job.name"),
    "bad variable": ("%veri_train {tiny} --data rows -o a.b", "UsageError", "'a.b' is no name for a variable"),
    "open quote": ("%veri_train {tiny} --name 'x", "UsageError", "No closing quotation"),
    "file and cell": ("%%veri_train job.toml\n[model]\nbase = 'x'", "UsageError", "not both"),
    "broken TOML": ("%%veri_train\n[model]\nbase = ./x\n", "InvalidRequest", "not TOML"),
    "no such display": (
        "%veri_train {tiny} --data rows --display widgets",
        "UsageError",
        "invalid choice: 'widgets'",
    ),
    "after": ("%veri_train {tiny} --data rows --after x", "VeriError", "isn't in this release"),
    "explorer without a model": ("%veri_explore --display static", "InvalidRequest", "no base model"),
    "doctor": ("%veri_doctor", "UsageError", "isn't in this release"),
    "no such job": ("%veri_attach nobody", "JobNotFound", "'nobody'"),
    "hostile text": ("%veri_logs __import__('os').getcwd()", "JobNotFound", "__import__(os).getcwd()"),
    "token": (f"%veri_train {{tiny}} --data rows --set hub_token={TOKEN}", "InvalidRequest", "hub_token = ***"),
    "token as an option": (f"%veri_train {{tiny}} --token={TOKEN}", "UsageError", "there is no --token."),
    "token as rows": (f"%veri_train {{tiny}} --data {TOKEN}", "UsageError", "--data ***"),
    "token as a job": (f"%veri_stop {TOKEN}", "JobNotFound", "'***'"),
    "token in a function": (f"import veri_jupyter; veri_jupyter.jobs('{TOKEN}')", "InvalidRequest", "status = '***'"),
}


@pytest.fixture(scope="module", autouse=True)
def _variables(kernel: Kernel, folder: Path) -> None:
    (folder / "empty.jsonl").touch()
    (folder / "broken.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": \n')
    kernel.run("rows = [{'prompt': 'a', 'completion': 'b'}] * 4\nstrange = [{'foo': 1}] * 4")


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, kernel: Kernel, sample: Sample, folder: Path) -> None:
    """The cell fails with what is wrong and no traceback; no process, no folder, no entry in the index."""
    cell, ename, said = REFUSED[case]
    reply = kernel.run(cell.format(tiny=sample.tiny, over=len(os.sched_getaffinity(0)) + 1))
    assert "error" == reply.status
    text = "\n".join(reply.traceback) + reply.stderr
    assert said in text
    assert "Traceback" not in text
    assert ".py" not in text
    assert TOKEN not in text + reply.stdout
    assert ename == (reply.ename or "UsageError")
    assert not (folder / "runs").exists()
    assert [] == index.entries()


def test_a_name_that_is_taken(kernel: Kernel, sample: Sample, folder: Path, tmp_path: Path) -> None:
    """A name is refused while another job of that name runs."""
    FakeJob(tmp_path / "run", "taken")
    reply = kernel.run(f"%veri_train {sample.tiny} --data rows --name taken")
    assert "InvalidRequest" == reply.ename
    assert "taken-20250101-101010-ab12" in reply.evalue
    assert not (folder / "runs").exists()


def test_a_refused_cell_leaves_the_variable_alone(kernel: Kernel) -> None:
    """-o is an assignment: when the cell fails, the variable keeps its value."""
    kernel.run("job = 'mine'")
    kernel.run("%veri_train ./nothing --data rows -o job")
    assert "mine\n" == kernel.run("print(job)").stdout


@pytest.mark.parametrize(
    "code",
    ["veri_jupyter.rehearse()", "job.checkpoints()", "veri_jupyter.Client().training_jobs.resume('x')"],
)
def test_known_names_say_that_they_are_not_here(code: str, kernel: Kernel, tmp_path: Path) -> None:
    """A name of a part that this release lacks is refused by name, not unknown."""
    FakeJob(tmp_path / "run", "present")
    kernel.run("import veri_jupyter\njob = veri_jupyter.attach('present')")
    reply = kernel.run(code)
    assert "VeriError" == reply.ename
    assert "isn't in this release" in reply.evalue
