"""The test bed itself: a cell runs in a real JupyterLab, and its output is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.lab import Server


def test_a_cell_runs(server: Server, browser: Browser) -> None:
    """The extension loads, and a widget is drawn."""
    with server.notebook(
        browser, "%load_ext veri_jupyter", "import ipywidgets; ipywidgets.HTML('<b>drawn</b>')"
    ) as page:
        page.run_cell(0)
        page.run_cell(1)
        page.output(1).get_by_text("drawn").wait_for()
        assert "" == page.output(0).inner_text()
