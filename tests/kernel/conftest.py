"""One kernel a file: a kernel takes a second to start, and the tests of a file share what they show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kernel.kernels import Kernel, started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The notebook's folder."""
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's state directory, as the kernel sees it."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def _same_home(_home: None, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERI_HOME", str(home))


@pytest.fixture(scope="module")
def kernel(folder: Path, home: Path) -> Iterator[Kernel]:
    """A kernel with the extension loaded."""
    with started(folder, VERI_HOME=str(home)) as fresh:
        assert "ok" == fresh.run("%load_ext veri_jupyter").status
        yield fresh
