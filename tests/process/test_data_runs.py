"""What the data decides about a run on two ranks: packed rows, a chat template by name, where answers end."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.data.chat.templates import read_template
from kernel_launcher.protocol.states import Status
from tests.process import jobs
from tests.process.ranks import events, in_turn, make_run

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_launcher.protocol.paths import RunDir
    from tests.conftest import Sample

pytestmark = pytest.mark.torch

STEPS = 2
PLANS: dict[str, dict[str, Any]] = {
    "packed": {"packing": True, "zero_stage": 0},
    "packed and sharded": {"packing": True, "zero_stage": 3},
    "packed adapter": {"packing": True, "zero_stage": 3, "lora_rank": 4},
    "its own template": {"lora_rank": 4},
    "a named template": {"chat_template": "vicuna"},
}


@pytest.fixture(scope="module")
def base(sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As base models are: plain text ends with another token than the turns of its chat template."""
    folder = shutil.copytree(sample.tiny, tmp_path_factory.mktemp("base") / "model")
    changes = {"tokenizer_config.json": {"eos_token": "<|endoftext|>"}, "generation_config.json": {"eos_token_id": 0}}
    for name, change in changes.items():
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | change))
    return folder


@pytest.fixture(scope="module")
def runs(base: Path, sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDir]:
    """Finished runs of two ranks."""
    common = {"gpu_count": 2, "max_steps": STEPS, "precision": "fp32", "learning_rate": 1e-3, "max_seq_length": 200}
    made = {
        name: make_run(tmp_path_factory.mktemp("run"), base, sample.sft, sample_every=0, **common, **plan)
        for name, plan in PLANS.items()
    }
    in_turn(list(made.values()))
    return made


def test_rows_are_packed_whatever_the_plan(runs: dict[str, RunDir]) -> None:
    """Sharded or not, the same sequences give the same losses; an adapter starts where they do."""
    losses = {
        name: [event["metrics"]["loss"] for event in events(run, 0, "step")]
        for name, run in runs.items()
        if "packed" in name
    }
    assert losses["packed"] == pytest.approx(losses["packed and sharded"], rel=1e-4)
    assert losses["packed"][0] == pytest.approx(losses["packed adapter"][0], rel=1e-4)
    (told,) = events(runs["packed"], 0, "data")
    assert 1 < told["packing"]["rows"] / told["packing"]["sequences"]


def test_the_trained_model_stops_where_its_answers_ended(runs: dict[str, RunDir]) -> None:
    """Beside where its base stops: what it has learned to write must end its answers, of an adapter too."""
    for name in ("packed", "its own template"):
        stops = json.loads((runs[name].final / "generation_config.json").read_text())["eos_token_id"]
        assert [0, 2] == stops, name


def test_a_named_template_goes_with_the_model(runs: dict[str, RunDir], base: Path) -> None:
    """Rows are rendered with it; its answers end as the base's texts do, so the base's stop token does."""
    run = runs["a named template"]
    assert read_template("vicuna") == (run.final / "chat_template.jinja").read_text()
    assert "ASSISTANT:⟦" in events(run, 0, "data")[0]["row"]["text"]
    stops = json.loads((run.final / "generation_config.json").read_text())["eos_token_id"]
    assert json.loads((base / "generation_config.json").read_text())["eos_token_id"] == stops


def test_an_error_of_the_linter_ends_the_job(sample: Sample, tmp_path: Path) -> None:
    """With the row and both ways out; no row and no weight is written, and no process is left."""
    rows = sample.sft.read_text().splitlines(keepends=True)[:8]
    turns = [{"role": "user", "content": "Stop.<|im_end|>"}, {"role": "assistant", "content": "Stopped."}]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join([*rows, json.dumps({"messages": turns})]))
    entry = jobs.start(tmp_path, sample.tiny, data, gpu_count=2, max_steps=1)
    view = jobs.wait_until(entry, lambda view: view.status is Status.FAILED)
    assert view.failure is not None
    assert ("dataset_format_incompatible", "customer", 0) == (
        view.failure.code,
        view.failure.attribution,
        view.failure.rank,
    )
    assert "See row 9. Take it out of the turns" in view.failure.headline
    assert 'Or, if it is meant: allow = ["control_tokens_in_text"].' in view.failure.headline
    assert [] == [*entry.run.data.iterdir(), *entry.run.root.glob("*final*")]
    assert [] == jobs.left_after(entry, 20)
