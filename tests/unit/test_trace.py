"""Measuring a step with torch's tracker: a number for layers that the memory model does not know, and kept."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import veri_jupyter
from kernel_launcher.__main__ import main
from kernel_launcher.planner import Plan
from kernel_launcher.preflight import environment, trace
from kernel_launcher.tracker.extrapolate import Cuts, Stretch, cuts, extended
from tests.unit.toys import refusal_of
from tests.unit.trace_toys import EXPERTS, folder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.trace_toys import Answering

DENSE = {
    "model_type": "qwen3", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
}  # fmt: skip


@pytest.fixture
def experts(tmp_path: Path) -> Path:
    return folder(tmp_path / "experts", EXPERTS)


def planned(base: Path | str, **settings: Any) -> Plan:
    return veri_jupyter.plan(str(base), **{"gpu_type": "L4-24GB", "gpus": 4, **settings})


@pytest.mark.torch
@pytest.mark.matrix
def test_experts_are_measured(experts: Path, monkeypatch: pytest.MonkeyPatch):
    """Without a trace nothing is said of a mixture of experts; with one there is a number, and no second process."""
    assert "CAN'T SAY: its layers are mixtures of experts" == planned(experts).peak_text
    made = planned(experts, trace=True, zero_stage=0)
    assert made.peak_text.startswith("FITS ")
    assert made.peak_text.endswith("tracker (4 and 5 of 10 layers, kernels of the CPU, nothing added in place)")
    # By hand: two experts and attention in each layer; bf16 weights, gradients, two moments, DDP's buckets.
    layer = 2 * 3 * 512 * 1024 + 512 * 64 * (8 + 2 + 2 + 8)
    states = 10 * layer * 2
    step = made.outlook.traced.phases["optimizer step"]
    assert 5 * states == pytest.approx(step, rel=0.03)
    monkeypatch.setattr(trace.subprocess, "run", None)
    assert made == planned(experts, trace=True, zero_stage=0)


def test_the_answer_is_kept(experts: Path, process: Answering):
    """The same workload is measured once, another one anew."""
    first = planned(experts, trace=True)
    assert first == planned(experts, trace=True)
    assert 1 == len(process.asked)
    planned(experts, trace=True, micro_batch_size=2)
    assert 2 == len(process.asked)
    assert [1, 2] == [asked["run"]["micro_batch_size"] for asked in process.asked]
    assert [False, True] == [asked["run"]["mask"] for asked in process.asked]


def test_a_broken_answer_on_disk_is_measured_again(experts: Path, process: Answering):
    """What is no answer is none."""
    planned(experts, trace=True)
    for kept in trace.home().glob("cache/traces/*.json"):
        kept.write_text("[]")
    planned(experts, trace=True)
    assert 2 == len(process.asked)


def test_both_are_shown_of_a_known_model(tmp_path: Path, process: Answering):
    """The verdict stays the memory model's, and the measurement stands beside it; it lasts through JSON."""
    base = folder(tmp_path / "dense", DENSE)
    plain, made = planned(base), planned(base, trace=True)
    assert plain.peak_text == made.peak_text
    (line,) = [line for line in made.describe() if line.startswith("measured: ")]
    assert line.startswith("measured: 3.00 GiB of tensors, worst: layer forward; the memory model: ")
    assert "measured with torch" in made.html()
    assert made == Plan.from_json(json.loads(json.dumps(made.to_json())))


def test_a_measured_plan_is_shown(experts: Path, process: Answering):
    """The number, its source and its worst phase, on the card and as JSON; no lever or alternative is made up."""
    made = planned(experts, trace=True)
    assert "worst: layer forward; measured with torch" in made.html().replace("&#x27;", "'")
    shown = json.loads(json.dumps(made.to_json()))
    assert (3 * 2**30, "layer forward") == (shown["peak"]["tensor_bytes"], shown["peak"]["phase"])
    assert [4, 5] == shown["measured"]["layers"]
    assert [] == made.levers
    assert made == Plan.from_json(shown)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lora_rank": 4, "load_in_4bit": True, "gpus": 1}, "4 bits"),
        ({"optim": "adafactor"}, "adafactor"),
        ({"use_liger": True, "gpus": 1}, "use_liger"),
        ({"cpu_offload": True, "zero_stage": 3}, "cpu_offload"),
    ],
)
def test_what_the_tracker_does_not_know(experts: Path, process: Answering, settings: dict[str, Any], said: str):
    """It is refused by name, and no process starts."""
    refused = refusal_of(lambda: planned(experts, trace=True, **settings))
    assert refused is not None
    assert ["trace"] == [fault.key for fault in refused.faults]
    assert said in str(refused)
    assert not process.asked


def test_a_model_without_config(process: Answering):
    """A model on the hub is measured when its config.json is in the cache."""
    refused = refusal_of(lambda: planned("owner/unknown", trace=True))
    assert refused is not None
    assert "config.json of owner/unknown is not here" in str(refused)


def test_an_environment_without_torch(experts: Path, process: Answering, monkeypatch: pytest.MonkeyPatch):
    """What to install, or which interpreter to name."""
    monkeypatch.setattr(environment, "_version", lambda name: None if name == "torch" else "1")
    refused = refusal_of(lambda: planned(experts, trace=True))
    assert refused is not None
    assert ["resources.python"] == [fault.key for fault in refused.faults]
    assert "lacks torch" in str(refused)
    assert "veri-jupyter[train]" in str(refused)


@pytest.mark.parametrize(
    ("stdout", "said"),
    [
        ('{"error": "ValueError: no such thing"}', "from its config: ValueError: no such"),
        ("", "early: the last line"),
    ],
)
def test_a_model_that_cannot_be_built(experts: Path, process: Answering, stdout: str, said: str):
    """Its own reason is passed on, and nothing is kept."""
    process.stdout = stdout
    with pytest.raises(veri_jupyter.VeriError, match=said) as caught:
        planned(experts, trace=True)
    assert "trace_failed" == caught.value.code
    assert not (trace.home() / "cache").exists()


def test_the_time_is_bounded(experts: Path, process: Answering, monkeypatch: pytest.MonkeyPatch):
    """A process that does not end is ended."""

    def slow(command: list[str], *, timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(trace.subprocess, "run", slow)
    with pytest.raises(veri_jupyter.VeriError, match="within 600 seconds"):
        planned(experts, trace=True)


def test_the_command_line(experts: Path, process: Answering, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """``--trace`` of ``veri-jupyter plan``."""
    job = tmp_path / "job.toml"
    job.write_text(f'[model]\nbase = "{experts}"\n[resources]\ngpu_type = "L4-24GB"\n')
    assert 0 == main(["plan", str(job), "--trace"])
    assert "measured with torch's tracker" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("a" * 36, Cuts(4, 5, 2)),
        ("aaab" * 8, Cuts(8, 12, 4)),
        ("aaab" * 8 + "aa", Cuts(10, 14, 4)),
        ("b" + "a" * 30, Cuts(5, 6, 2)),
        ("a" * 5, None),
        ("abcdefgh", None),
    ],
)
def test_how_many_layers_are_measured(kinds: str, expected: Cuts | None):
    """As few as have every kind of layer at both ends, twice; a model with few layers, or no pattern, as a whole."""
    assert expected == cuts(kinds)


def test_each_stretch_is_extended_by_itself():
    """A step that grows slowly and starts high is overtaken by one that grows fast; those in between are left out."""

    def measured(layers: int) -> dict[Stretch, int]:
        inner = {Stretch("layer backward", n): 30 * layers - n for n in range(layers)}
        return {Stretch("loss, forward"): 1000 + 10 * layers, Stretch("optimizer step"): 40 * layers, **inner}

    found = extended(measured(4), measured(5), Cuts(4, 5, 2), 100)
    assert 2000 == found[Stretch("loss, forward")]
    assert 4000 == found[Stretch("optimizer step")]
    assert {0: 3000, 1: 2999, -2: 2902, -1: 2901} == {
        place.layer: size for place, size in found.items() if place.phase == "layer backward"
    }
