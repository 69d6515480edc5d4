"""Every plan on two ranks: spread as it says, with the losses of the others, and with the files of one rank alone."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.planner import Plan
from kernel_launcher.planner.memory.units import Units
from tests.process.ranks import events, in_turn, make_run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kernel_launcher.protocol.paths import RunDir
    from tests.conftest import Sample

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

STEPS = 10
# Relative to stage 0: in float32 what another order of sums makes, in bfloat16 that of roundings, too.
BANDS = {"fp32": 1e-4, "bf16_mixed": 3e-3, "bf16": 3e-3}


@dataclass(frozen=True)
class Cell:
    """One plan."""

    method: str
    lora: bool
    precision: str
    stage: int

    def __str__(self) -> str:
        return f"{self.method}-{'lora' if self.lora else 'full'}-{self.precision}-{self.stage}"

    @property
    def settings(self) -> dict[str, Any]:
        lora = {"lora_rank": 4} if self.lora else {}
        return {"method": self.method, "precision": self.precision, "zero_stage": self.stage, **lora}


# Each value of each axis, and whatever is needed to compare it with.
FEW = [
    *(Cell("sft_text", False, "fp32", stage) for stage in (0, 3)),
    *(Cell("dpo", True, "bf16_mixed", stage) for stage in (0, 3)),
    *(Cell("dpo", False, "bf16", stage) for stage in (0, 2)),
]


class Runs:
    """Finished runs of cells."""

    def __init__(self, folder: Path, sample: Sample, cells: Iterable[Cell]) -> None:
        self.cells = list(cells)
        self.of = {cell: _make(folder / str(cell), sample, **cell.settings) for cell in self.cells}
        in_turn(list(self.of.values()))

    def metric(self, cell: Cell, name: str = "loss") -> list[float]:
        return [event["metrics"][name] for event in events(self.of[cell], 0, "step")]


def _make(folder: Path, sample: Sample, **settings: Any) -> RunDir:
    folder.mkdir()
    data = sample.dpo if settings["method"] == "dpo" else sample.sft
    settings = {"gpu_count": 2, "max_steps": STEPS, "learning_rate": 1e-3, "sample_every": 0} | settings
    return make_run(folder, sample.tiny, data, **settings)


def _all(method: str, lora: bool) -> Any:
    cells = [Cell(method, lora, *way) for way in product(("fp32", "bf16_mixed", "bf16"), (0, 2, 3))]
    return pytest.param(cells, marks=pytest.mark.matrix, id=f"{method}-{'lora' if lora else 'full'}")


@pytest.fixture(
    scope="module",
    params=[pytest.param(FEW, id="few"), *(_all(*of) for of in product(("sft_text", "dpo"), (False, True)))],
)
def runs(request: pytest.FixtureRequest, sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("cells"), sample, request.param)


def held(run: RunDir, rank: int) -> dict[str, Any]:
    """Both of its reports in one."""
    before, after = events(run, rank, "held")
    return {**before, **after}


def test_every_rank_holds_what_the_plan_says(runs: Runs) -> None:
    """DTensors over both ranks where it says so and nowhere else, and as many bytes as the memory model has."""
    for cell, run in runs.of.items():
        workload = Plan.from_json(json.loads(run.plan.read_text())).outlook
        units = Units(workload.workload, workload.shape)  # type: ignore[arg-type]
        for rank in (0, 1):
            found = held(run, rank)
            wanted = "Shard(0) of 2" if cell.stage else "whole"
            assert [wanted] == list(found["placements"]), cell
            assert units.weights == found["param_bytes"], cell
            assert units.gradients == found["grad_bytes"], cell
            assert units.optimizer == found["optimizer_bytes"], cell


def test_formats_are_reported_as_planned(runs: Runs) -> None:
    """Masters and reduction in float32 where precision is mixed, and outputs that nobody rounds again."""
    for cell, run in runs.of.items():
        dtypes = held(run, 0)["dtypes"]
        narrow = "float32" if cell.precision == "fp32" else "bfloat16"
        masters = "float32" if cell.lora or cell.precision == "bf16_mixed" else narrow
        assert (narrow if cell.lora else masters) == dtypes["weights"], cell
        assert (masters, narrow, masters) == (dtypes["masters"], dtypes["compute"], dtypes["reduce"]), cell


def test_all_stages_begin_with_the_same_weights(runs: Runs) -> None:
    """Each rank under DDP, and all together under FSDP2, hold what the file has."""
    hashes: dict[Cell, set[str]] = {}
    for cell, run in runs.of.items():
        found = {events(run, rank, "held")[0]["weights_hash"] for rank in (0, 1)}
        hashes.setdefault(replace(cell, stage=0), set()).update(found)
    assert {1} == {len(found) for found in hashes.values()}


def test_losses_are_those_of_stage_0(runs: Runs) -> None:
    """All ten of them, and the gradients' norms, and they change from step to step."""
    for cell in runs.cells:
        expected = runs.metric(replace(cell, stage=0))
        assert STEPS == len(set(expected))
        assert expected == pytest.approx(runs.metric(cell), rel=BANDS[cell.precision]), cell


def test_dpo_begins_at_ln_2(runs: Runs) -> None:
    """Policy and reference are the same model, computed alike, whatever the plan."""
    for cell in runs.cells:
        if cell.method == "dpo":
            assert math.log(2) == pytest.approx(runs.metric(cell)[0], abs=1e-5), cell


def test_rewards_are_reported(runs: Runs) -> None:
    """Nought at the start, and margins that are the difference of the two."""
    for cell in runs.cells:
        if cell.method == "dpo":
            chosen, rejected = runs.metric(cell, "rewards/chosen"), runs.metric(cell, "rewards/rejected")
            margins = [a - b for a, b in zip(chosen, rejected, strict=True)]
            assert margins == pytest.approx(runs.metric(cell, "rewards/margins"), abs=1e-6), cell
            assert (0, 0) == pytest.approx((chosen[0], rejected[0]), abs=1e-5), cell
            assert all(0 <= share <= 1 for share in runs.metric(cell, "rewards/accuracies")), cell


def test_the_files_are_those_of_one_rank(runs: Runs, sample: Sample, tmp_path: Path) -> None:
    """Names, keys, shapes and formats, whatever the plan."""
    alone = {replace(cell, method="sft_text", stage=0): None for cell in runs.cells}
    found = {cell: _make(tmp_path / str(cell), sample, **cell.settings, gpu_count=1, max_steps=1) for cell in alone}
    in_turn(list(found.values()))
    for cell, run in runs.of.items():
        expected = found[replace(cell, method="sft_text", stage=0)]
        assert _contents(expected.final) == _contents(run.final), cell
        assert [True] == [event["verified"] for event in events(run, 0, "artifact")]


def _contents(folder: Path) -> dict[str, Any]:
    from safetensors import safe_open

    files: dict[str, Any] = {path.name: None for path in folder.iterdir()}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as stored:
            files[path.name] = {
                name: (stored.get_tensor(name).dtype, stored.get_tensor(name).shape)
                for name in stored.keys()  # noqa: SIM118 - no dict
            }
    return files
