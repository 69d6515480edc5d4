"""Notebooks that nobody sits in front of: what is saved, how a failure looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nbformat
import papermill
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.kernel.fakes import FakeJob

if TYPE_CHECKING:
    from pathlib import Path


def notebook(*cells: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def run(folder: Path, *cells: str) -> Any:
    made = notebook("%load_ext veri_jupyter\nimport veri_jupyter", *cells)
    NotebookClient(made, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    return made


def texts(cell: Any) -> list[str]:
    return [output["data"]["text/plain"] for output in cell.outputs if "data" in output]


def test_what_is_saved_of_a_job_that_goes_on(tmp_path: Path) -> None:
    """The saved notebook says when this was true and how to see the job again."""
    FakeJob(tmp_path / "run", "goes-on")
    summary, chart = texts(run(tmp_path, "%veri_attach goes-on").cells[1])
    assert "○ provisioning goes-on" in summary
    assert "as of " in summary
    assert "if this stands still: %veri_attach goes-on-20250101-101010-ab12" in summary
    assert "loss: no step yet" == chart


def test_a_program_gets_no_widgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was started in a notebook: five megabytes of script would be written into the file."""
    monkeypatch.setenv("JPY_SESSION_NAME", "x.ipynb")
    job = FakeJob(tmp_path / "run", "done")
    for step in range(1, 2001):
        job.step(step, 2000)
    job.status("completed")
    made = run(tmp_path, "%veri_attach done")
    assert "widgets" not in made.metadata
    assert len(nbformat.writes(made)) < 40_000
    assert "application/vnd.plotly.v1+json" in made.cells[1].outputs[1].data


@pytest.mark.parametrize(
    ("cell", "ename", "evalue"),
    [
        ("%veri_train ./nothing --data rows", "InvalidRequest", "there is no such folder"),
        ("%veri_train ./nothing --data rowz", "UsageError", "Did you mean rows?"),
        ("veri_jupyter.attach('failed').wait()", "JobFailed", "rank 0/1 failed: too much"),
    ],
)
def test_a_refused_cell_ends_the_run(cell: str, ename: str, evalue: str, tmp_path: Path) -> None:
    """The program that runs the notebook gets the error's name and its text."""
    FakeJob(tmp_path / "run", "failed").fail(
        code="oom", message="rank 0/1 failed: too much\nplan: dp=1", attribution="customer", rank=0
    )
    with pytest.raises(CellExecutionError) as caught:
        run(tmp_path, "rows = []", cell)
    assert ename == caught.value.ename
    assert evalue in caught.value.evalue


def test_papermill_runs_it(tmp_path: Path) -> None:
    """Papermill saves the summary, too."""
    FakeJob(tmp_path / "run", "done").status("completed")
    nbformat.write(notebook("%load_ext veri_jupyter\n%veri_attach done"), tmp_path / "in.ipynb")
    papermill.execute_notebook(
        tmp_path / "in.ipynb", tmp_path / "out.ipynb", kernel_name="python3", cwd=tmp_path, progress_bar=False
    )
    summary, _ = texts(nbformat.read(tmp_path / "out.ipynb", as_version=4).cells[0])
    assert summary.startswith("✓ completed done: Done in ")
