"""The notebook of decisions: clean in the repository, and right from top to bottom without a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "plan_explorer.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert [] == [cell.id for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")]
    resources = {"metadata": {"path": str(tmp_path_factory.mktemp("decisions"))}}
    NotebookClient(notebook, timeout=100, kernel_name="python3", resources=resources).execute()
    return notebook


def _said(executed: Any) -> dict[str, str]:
    """What each cell shows, as text."""
    return {
        cell.id: "".join(
            output.get("text", "") + output.get("data", {}).get("text/plain", "")
            for output in cell.get("outputs", [])
        )
        for cell in executed.cells
    }


def test_each_decision_is_shown(executed: Any) -> None:
    """It fits in one way; it fits for a concession; the batch stays the same."""
    said = _said(executed)
    assert "zero_stage=3" in said["four-l4"]
    assert "FITS" in said["four-l4"]
    assert "FITS" in said["four-l4-ways"]
    assert "DOES NOT FIT" in said["eight-b"]
    nothing, *_, lora, money = said["eight-b-ways"].splitlines()
    assert ("DOES NOT FIT" in nothing, " FITS " in lora, " FITS " in money) == (True, True, True)
    assert 4 == said["batch"].count(" = 64 rows a step: FITS")


def test_without_a_page_it_is_small_and_says_how_to_see_it_live(executed: Any) -> None:
    """Cards, and no widget."""
    assert "widgets" not in executed.metadata
    assert len(nbformat.writes(executed)) < 100_000
    assert "To move it: " in _said(executed)["batch-form"]
