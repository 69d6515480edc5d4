"""One server and one browser for all tests of this folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.lab import CHROMIUM, Server, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser


# Not for the whole session: playwright's loop would still run when the tests of other folders start theirs.
@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A JupyterLab on an empty folder."""
    with serving(tmp_path_factory.mktemp("lab"), tmp_path_factory.mktemp("lab-home")) as lab:
        yield lab


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    if not Path(CHROMIUM["executable_path"]).exists():
        pytest.skip("needs Debian's chromium (.ci/run installs it), or VERI_CHROMIUM")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(**CHROMIUM)
        yield chromium
        chromium.close()


@pytest.fixture(autouse=True)
def _same_home(_home: None, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERI_HOME", str(server.home))


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: ``VERI_SCREENSHOTS``, or a folder that pytest throws away in time."""
    chosen = os.environ.get("VERI_SCREENSHOTS")
    folder = Path(chosen).absolute() if chosen else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
