"""Samples on two ranks: whatever the plan, the same prompts are answered, and training does not notice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.protocol.fold import JobView
from tests.process.ranks import events, in_turn, make_run

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_launcher.protocol.paths import RunDir
    from tests.conftest import Sample

pytestmark = pytest.mark.torch

STEPS = 3
PROMPTS = ["What does `abs` do?", "And `json.dumps`, in a few more words?"]


@dataclass(frozen=True)
class Case:
    """A plan, with samples or without."""

    stage: int
    lora: bool
    samples: bool


CASES = [
    Case(stage, lora, samples) for stage, lora in ((0, False), (2, False), (3, True)) for samples in (True, False)
]


@pytest.fixture(scope="module")
def runs(sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> dict[Case, RunDir]:
    """Finished runs of two ranks."""
    made = {case: _make(tmp_path_factory.mktemp("case"), sample, case) for case in CASES}
    in_turn(list(made.values()))
    return made


def _make(folder: Path, sample: Sample, case: Case) -> RunDir:
    settings: dict[str, Any] = {
        "gpu_count": 2,
        "max_steps": STEPS,
        "precision": "fp32",
        "learning_rate": 0.01,
        "zero_stage": case.stage,
        "sample_prompts": PROMPTS,
        "sample_every": 1 if case.samples else 0,
        **({"lora_rank": 4} if case.lora else {}),
    }
    return make_run(folder, sample.tiny, sample.sft, **settings)


def test_training_does_not_notice(runs: dict[Case, RunDir]) -> None:
    """Losses and gradient norms with samples are those without, to the last digit."""
    for case, run in runs.items():
        if case.samples:
            without = runs[Case(case.stage, case.lora, samples=False)]
            for name in ("loss", "grad_norm"):
                expected, found = (
                    [event["metrics"][name] for event in events(folder, 0, "step")] for folder in (without, run)
                )
                assert expected == found, case


def test_each_plan_gives_the_same_answers_before_training(runs: dict[Case, RunDir]) -> None:
    """Sharded weights are gathered by all ranks for it; an adapter is zero at first."""
    before = [events(run, 0, "samples")[0] for case, run in runs.items() if case.samples]
    assert [0] * len(before) == [event["step"] for event in before]
    assert PROMPTS == [answer["prompt"] for answer in before[0]["samples"]]
    assert all(answer["text"] for answer in before[0]["samples"])
    assert [before[0]["samples"]] * len(before) == [event["samples"] for event in before]


def test_rounds_are_reported_by_rank_0_alone(runs: dict[Case, RunDir]) -> None:
    """One after each step that is due, or the reason why not; the end is always there."""
    for case, run in runs.items():
        rounds = events(run, 0, "samples")
        assert list(range(STEPS + 1)) * case.samples == [event["step"] for event in rounds]
        assert all(event["samples"] or event["skipped"] for event in rounds)
        assert [] == events(run, 1, "samples")
        if case.samples:
            shown = JobView().apply_all(events(run, 0)).samples
            assert (0, STEPS) == (shown[0].step, shown[-1].step)
        assert [] == [event for event in events(run, 0, "warning") if "samples" in event["message"]]


def test_what_updates_do_is_measured_over_all_ranks(runs: dict[Case, RunDir]) -> None:
    """Of sharded weights each rank sees a part; together they say what one that holds all of them sees."""
    whole, sharded = (events(runs[Case(stage, lora=False, samples=False)], 0, "step") for stage in (0, 2))
    for expected, found in zip(whole, sharded, strict=True):
        for name in ("weights_changed", "update_ratio"):
            assert expected["metrics"][name] == pytest.approx(found["metrics"][name], rel=0.02), name
