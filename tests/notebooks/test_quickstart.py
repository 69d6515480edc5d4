"""The quickstart: clean in the repository, and right from top to bottom."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

if TYPE_CHECKING:
    from tests.conftest import Sample

QUICKSTART = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"


@pytest.fixture
def quickstart() -> Any:
    return nbformat.read(QUICKSTART, as_version=4)


def test_it_is_saved_without_outputs(quickstart: Any) -> None:
    """Outputs, counts and this machine's names do not belong in the repository."""
    nbformat.validate(quickstart)
    assert [] == [cell.id for cell in quickstart.cells if cell.get("outputs") or cell.get("execution_count")]
    assert {"kernelspec", "language_info"} == set(quickstart.metadata)


def test_it_leaves_the_gpus_open(quickstart: Any) -> None:
    """The same notebook runs on two processor ranks and on all GPUs."""
    code = "".join(cell.source for cell in quickstart.cells if cell.cell_type == "code")
    assert "gpu" not in code.lower()


def shortened(folder: Path, sample: Sample) -> Any:
    """The quickstart on the tiny model and for three steps; puts the sample into its folder."""
    (folder / "sample").mkdir()
    for name in ("tiny", "sft.jsonl", "heldout.jsonl", "dpo.jsonl"):
        (folder / "sample" / name).symlink_to(sample.root / name)
    (folder / "sample" / "smollm2").symlink_to(sample.tiny)
    notebook: Any = nbformat.read(QUICKSTART, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("max_steps = 30", "max_steps = 3").replace("= 256", "= 64")
    return notebook


@pytest.fixture(scope="module")
def executed(sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The shortened quickstart after Run All."""
    folder = tmp_path_factory.mktemp("quickstart")
    notebook = shortened(folder, sample)
    resources = {"metadata": {"path": str(folder)}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VERI_HOME", str(folder / "home"))
        NotebookClient(notebook, timeout=200, kernel_name="python3", resources=resources).execute()
    return notebook


@pytest.mark.matrix
def test_it_runs_from_top_to_bottom(executed: Any) -> None:
    """Sample, plan, train, watch, answers before and after: each cell says what it promises."""
    printed = {cell.id: "".join(o.get("text", "") for o in cell.get("outputs", [])) for cell in executed.cells}
    (plan,) = next(cell for cell in executed.cells if cell.id == "plan").outputs
    assert "plan: dp=" in plan["data"]["text/plain"]
    assert "run folder: " in printed["train"]
    assert "loss of the first five steps" in printed["wait"]
    assert printed["wait"].endswith("/runs/quickstart/final\n")
    assert 2 == printed["answers"].count("  before: ") == printed["answers"].count("  after: ")


@pytest.mark.matrix
def test_a_later_cell_brings_the_summary_to_its_end(executed: Any) -> None:
    """The saved notebook, and the page that nbconvert makes of it, show how the job ended where it was started."""
    train = next(cell for cell in executed.cells if cell.id == "train")
    text, chart = [output["data"]["text/plain"] for output in train.outputs if "data" in output]
    assert chart.startswith("loss ")
    assert text.startswith("✓ completed quickstart: Done in ")
    html, _ = HTMLExporter().from_notebook_node(executed)
    assert 'aria-label="Job quickstart: completed"' in html


@pytest.mark.matrix
def test_it_stays_small(executed: Any) -> None:
    """A notebook that is sent around: no widget's script, no megabyte of figures."""
    assert len(nbformat.writes(executed)) < 300_000
