"""What must not change a result: how a batch is split, on how many ranks, and doing it twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.ranks import events, in_turn, make_run

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_launcher.protocol.paths import RunDir
    from tests.conftest import Sample

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

GLOBAL_BATCH = 8
STEPS = 2


@pytest.fixture(scope="module")
def rows(sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of very different lengths, as many as one optimizer step takes: each epoch is one, in whatever order."""
    texts = [json.loads(line) for line in sample.sft.read_text().splitlines()]
    texts.sort(key=lambda row: len(json.dumps(row)))
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in texts[:: len(texts) // GLOBAL_BATCH][:GLOBAL_BATCH]))
    return path


def run_of(folder: Path, sample: Sample, rows: Path, **settings: Any) -> RunDir:
    folder.mkdir()
    settings = {"precision": "fp32", "num_epochs": float(STEPS), "max_seq_length": 256, "sample_every": 0} | settings
    return make_run(folder, sample.tiny, rows, **settings)


def steps(run: RunDir) -> list[tuple[float, float]]:
    found = [event["metrics"] for event in events(run, 0, "step")]
    return [(metrics["loss"], metrics["grad_norm"]) for metrics in found]


@pytest.mark.parametrize("stage", [3, *(pytest.param(stage, marks=pytest.mark.matrix) for stage in (0, 2))])
def test_a_batch_may_be_split_in_any_way(tmp_path: Path, sample: Sample, rows: Path, stage: int) -> None:
    """Micro-batches of 1, 2 and 4, on one rank and spread over two: the same losses and norms to 1e-5."""
    runs = {
        ranks: [
            run_of(
                tmp_path / f"{ranks}-{micro}",
                sample,
                rows,
                gpu_count=ranks,
                micro_batch_size=micro,
                global_batch_size=GLOBAL_BATCH,
                zero_stage=stage if ranks == 2 else 0,
            )
            for micro in (1, 2, 4)
        ]
        for ranks in (1, 2)
    }
    for same_ranks in runs.values():
        in_turn(same_ranks)
    expected = steps(runs[1][0])
    assert STEPS == len({loss for loss, _ in expected})
    for run in (*runs[1], *runs[2]):
        for one, other in zip(expected, steps(run), strict=True):
            assert one == pytest.approx(other, rel=1e-5), run.root


@pytest.mark.parametrize("precision", ["bf16", pytest.param("bf16_mixed", marks=pytest.mark.matrix)])
def test_a_run_repeats_to_the_last_digit(tmp_path: Path, sample: Sample, precision: str) -> None:
    """In every stage: the same seed, the same losses. Another seed, others."""
    settings = {"gpu_count": 2, "max_steps": 4, "precision": precision, "max_seq_length": 64, "learning_rate": 1e-3}
    runs = {
        (stage, seed, which): run_of(
            tmp_path / f"{stage}-{seed}-{which}", sample, sample.sft, zero_stage=stage, seed=seed, **settings
        )
        for stage in (0, 2, 3)
        for seed, which in ((1, "first"), (1, "second"), (2, "other"))
    }
    in_turn(list(runs.values()))
    for stage in (0, 2, 3):
        first, second, other = (steps(run) for key, run in runs.items() if key[0] == stage)
        assert first == second
        assert first != other
