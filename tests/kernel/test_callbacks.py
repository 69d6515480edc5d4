"""Clicks reach the drawing thread on every release of ipykernel: free, and while a cell is busy."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kernel_launcher.protocol import control
from tests.kernel.fakes import FakeJob
from tests.kernel.kernels import Kernel, started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIND = """
from ipywidgets.widgets.widget import _instances
print([each.comm.comm_id for each in _instances.values() if getattr(each, "description", None) == "Stop"][-1])
"""
OLDER = "7.3"


@pytest.fixture(scope="module", params=["installed", pytest.param(OLDER, marks=pytest.mark.matrix)])
def kernel(
    request: pytest.FixtureRequest, folder: Path, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kernel]:
    """A kernel that a Jupyter server started, of this release and of an older one."""
    environment = {"VERI_HOME": str(home), "JPY_SESSION_NAME": str(folder / "x.ipynb")}
    if request.param != "installed":
        other = tmp_path_factory.mktemp("older")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(other)]
        subprocess.run([*pip, f"ipykernel=={request.param}.*"], check=True)
        environment["PYTHONPATH"] = os.pathsep.join([str(other), os.environ.get("PYTHONPATH", str(folder))])
    with started(folder, **environment) as fresh:
        assert "ok" == fresh.run("%load_ext veri_jupyter").status
        version = fresh.run("import ipykernel; print(ipykernel.__version__)").stdout
        assert request.param == "installed" or version.startswith(request.param)
        yield fresh


@pytest.mark.parametrize("busy", [False, True])
def test_a_click_is_followed(busy: bool, kernel: Kernel, tmp_path: Path) -> None:
    """Two clicks on the button stop the job, also while a cell computes: the frontend then uses a subshell."""
    job = FakeJob(tmp_path / "run", f"clicked-{busy}".lower())
    shown = kernel.run(f"%veri_attach {job.entry.name}").shown
    assert "application/vnd.jupyter.widget-view+json" in shown[0]
    button = kernel.run(FIND).stdout.strip()
    subshell = kernel.subshell() if busy else None
    if busy:
        kernel.begin("import time; print('at' + ' work', flush=True); time.sleep(20)", until="at work")
    with job.answering():
        kernel.click(button, subshell)
        assert kernel.hear_comm(30, "Really stop?")
        kernel.click(button, subshell)
        assert kernel.hear_comm(30, "■ cancelled")
    assert ["stop"] == [request.name for request in control.pending(job.entry.run)]
    if busy:
        assert "error" == kernel.interrupt().status, "the cell had ended before the click was followed"
