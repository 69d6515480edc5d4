"""Jobs side by side, and the figure for a paper."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import veri_jupyter
from kernel_launcher.protocol.files import write_json
from tests.kernel.fakes import FakeJob
from tests.unit.test_face_static import Page
from tests.unit.views import moment, step
from veri_jupyter.monitor.compare import Comparison

if TYPE_CHECKING:
    from pathlib import Path


def job(folder: Path, name: str, steps: int = 20, **method: Any) -> FakeJob:
    made = FakeJob(folder / name, name)
    plan = {
        "method": {"type": "sft_text", "micro_batch_size": 2, **method},
        "resources": {"gpu_count": 2},
        "peak": None,
    }
    write_json(made.entry.run.plan, plan)
    made.status("running")
    for number in range(1, steps + 1):
        made.step(number, 40)
    return made


def test_the_settings_that_differ(tmp_path: Path) -> None:
    """What is the same in every job is not shown; what one job lacks is said."""
    job(tmp_path, "slow", learning_rate=1e-5, lora_rank=8)
    job(tmp_path, "fast", learning_rate=1e-3)
    found = veri_jupyter.compare("slow", veri_jupyter.attach("fast"))
    assert {"learning_rate": ["1e-05", "0.001"], "lora_rank": ["8", "—"]} == found.differences
    assert ["slow", "fast"] == found.names
    assert "lora_rank      8" in str(found)
    assert "step" in Page(found._repr_html_()).text


def test_one_line_a_job(tmp_path: Path) -> None:
    """Smoothed losses under the names, in colours that differ."""
    job(tmp_path, "one")
    job(tmp_path, "two", 30)
    figure = veri_jupyter.compare("one", "two").figure()
    assert [("one", 20), ("two", 30)] == [(trace.name, len(trace.y)) for trace in figure.data]
    assert 2 == len({trace.line.color for trace in figure.data})


def test_jobs_of_one_name_are_told_apart_by_their_ids() -> None:
    """Two runs of the same cell."""
    shown = moment(step(1))
    other = replace(shown, entry=replace(shown.entry, id="first-2"))
    assert [shown.entry.id, "first-2"] == Comparison([shown, other]).names


def test_one_job_is_too_few(tmp_path: Path) -> None:
    """A job is not compared with itself."""
    job(tmp_path, "one")
    with pytest.raises(veri_jupyter.InvalidRequest, match="are too few"):
        veri_jupyter.compare("one")


def test_a_figure_for_a_paper(tmp_path: Path) -> None:
    """Named lines, titled axes, white ground, and no more points than asked for."""
    job(tmp_path, "one", 400)
    figure = veri_jupyter.attach("one").figure(max_points=50)
    assert all(len(trace.y) <= 50 for trace in figure.data if trace.y is not None)
    legend = [trace.name for trace in figure.data if trace.showlegend]
    assert ["loss, each step", "loss, mean of about 5 steps"] == legend
    assert "optimizer step" == figure.layout.xaxis.title.text
    with pytest.raises(veri_jupyter.InvalidRequest, match="max_points"):
        veri_jupyter.attach("one").figure(max_points=2)


def test_a_way_to_show_it_that_there_is_not(tmp_path: Path) -> None:
    """Said with what there is."""
    job(tmp_path, "one")
    with pytest.raises(veri_jupyter.InvalidRequest, match="auto, widget, static"):
        veri_jupyter.attach("one").dashboard("big")
