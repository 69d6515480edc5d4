"""The published rule for ``zero_stage``: its worked examples to the printed digit, and every branch of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_launcher.errors import InvalidRequest
from kernel_launcher.facts.catalogue import facts_of
from kernel_launcher.facts.machine import hardware_for
from kernel_launcher.planner import Hardware, ModelFacts, Plan, make_plan
from kernel_launcher.spec import read_spec
from tests.unit.toys import refusal_of

L4X4, H100X8 = ("L4-24GB", 4), ("H100-80GB", 8)


def plan(base: str, gpus: tuple[str, int], model: ModelFacts | None = None, **settings: Any) -> Plan:
    hardware = hardware_for(gpus[0])
    assert isinstance(hardware, Hardware)
    spec = read_spec({"base_model": base, "gpu_type": gpus[0], "gpu_count": gpus[1], **settings})
    return make_plan(spec, hardware, model or facts_of(base) or ModelFacts())


class Example(NamedTuple):
    """A row of the published table: gigabytes as printed there."""

    base: str
    settings: dict[str, Any]
    gpus: tuple[str, int]
    states: int
    stage: int
    per_gpu: int
    reference: int = 0
    over: bool = False


EXAMPLES = [
    Example("Qwen/Qwen3-0.6B", {}, L4X4, 6, 0, 6),
    Example("Qwen/Qwen3-4B", {}, L4X4, 32, 3, 8),
    Example("Qwen/Qwen3-1.7B", {"method": "dpo"}, L4X4, 16, 3, 8, reference=4),
    Example("Qwen/Qwen3-4B", {"lora_rank": 8}, L4X4, 8, 0, 8),
    Example("Qwen/Qwen3-8B", {}, L4X4, 66, 3, 16, over=True),
    Example("Qwen/Qwen3-32B", {}, H100X8, 262, 3, 33),
]


@pytest.mark.parametrize("policy", ["page", "peak"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.base}-{example.states}")
def test_the_worked_examples(example, policy):
    """To the printed digit; the peak agrees with each of these stages."""
    made = plan(example.base, example.gpus, plan_policy=policy, **example.settings)
    estimate = made.estimate
    held = (estimate.model_states_bytes - estimate.reference_model_bytes, estimate.reference_model_bytes)
    assert (example.states, example.reference) == tuple(round(size / 1e9) for size in held)
    assert (example.stage, example.per_gpu) == (made.method.zero_stage, round(estimate.per_gpu_bytes / 1e9))
    assert example.over == any("over the budget" in warning for warning in made.warnings)


def test_the_plan_line_of_the_examples():
    """The line at the top of a log, letter by letter, preceded by count, budget and decision."""
    told = plan("Qwen/Qwen3-4B", L4X4).describe()
    assert [
        "parameters: 4,022,468,096 (catalogue: Qwen/Qwen3-4B, Qwen3 technical report, count as stored on the hub)",
        "budget: 15.3 GB of states a GPU (70 % of 24.0 GB after 2 GiB)",
        "decision: zero_stage = 3: states of 32.2 GB do not fit the budget; over 4 GPUs it is 8.0 GB each.",
        (
            "plan: dp=4 zero_stage=3 tp=1 cp=1 mbs=1 grad_acc=1 gbs=4 precision=bf16 gradient_checkpointing=on "
            "(auto: 8.0 GB states/GPU)"
        ),
    ] == told[:4]


N = 10**9
ONE_BILLION = ModelFacts(param_count=N, source="counted", linears={"q_proj": 1000})


@pytest.mark.parametrize(
    ("settings", "states", "reference", "checkpoint"),
    [
        ({}, 8 * N, 0, 6 * N),
        ({"precision": "bf16_mixed"}, 16 * N, 0, 12 * N),
        ({"precision": "fp32"}, 16 * N, 0, 12 * N),
        ({"type": "dpo"}, 10 * N, 2 * N, 6 * N),
        ({"type": "dpo", "precision": "bf16_mixed"}, 18 * N, 2 * N, 12 * N),
        ({"lora_rank": 8}, 2 * N + 16 * 8000, 0, 12 * 8000),
        ({"lora_rank": 8, "precision": "bf16_mixed"}, 2 * N + 16 * 8000, 0, 12 * 8000),
        ({"lora_rank": 8, "precision": "fp32"}, 4 * N + 16 * 8000, 0, 12 * 8000),
        ({"lora_rank": 8, "type": "dpo"}, 2 * N + 16 * 8000, 0, 12 * 8000),
        ({"lora_rank": 8, "load_in_4bit": True, "zero_stage": 0}, N * 6 // 10 + 16 * 8000, 0, 12 * 8000),
    ],
)
def test_states_by_setup(settings, states, reference, checkpoint):
    """Bytes a parameter by format and method; an adapter's DPO needs no second copy."""
    estimate = plan("owner/model", L4X4, ONE_BILLION, **settings).estimate
    assert (states, reference, checkpoint) == (
        estimate.model_states_bytes, estimate.reference_model_bytes, estimate.checkpoint_bytes
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "stage", "per_gpu"),
    [
        ({"zero_stage": 0}, 0, 8 * N),
        ({"zero_stage": 2}, 2, 2 * N + 6 * N // 4),
        ({"zero_stage": 3}, 3, 2 * N),
        ({"zero_stage": 2, "precision": "fp32"}, 2, 4 * N + 12 * N // 4),
        ({"zero_stage": 0, "type": "dpo"}, 0, 10 * N),
        ({"zero_stage": 2, "type": "dpo"}, 2, 2 * N + 6 * N // 4 + 2 * N),
        ({"zero_stage": 3, "type": "dpo"}, 3, 4 * N),
        ({"cpu_offload": True}, 3, 0),
        ({"cpu_offload": True, "zero_stage": 2}, 2, 0),
        ({"cpu_offload": True, "type": "dpo"}, 3, 2 * N),
        ({}, 0, 8 * N),
        ({"precision": "fp32"}, 3, 4 * N),
    ],
)
def test_states_on_one_gpu(settings, stage, per_gpu):
    """What a stage spreads and what stays whole; an explicit stage is honoured, offload forces one."""
    made = plan("owner/model", L4X4, ONE_BILLION, plan_policy="page", **settings)
    assert (stage, per_gpu) == (made.method.zero_stage, made.estimate.per_gpu_bytes)


def test_an_explicit_stage_is_honoured_over_budget():
    """With a warning, never a refusal."""
    made = plan("Qwen/Qwen3-8B", L4X4, zero_stage=0)
    assert 0 == made.method.zero_stage
    assert any("over the budget" in warning for warning in made.warnings)
    assert "decision: zero_stage = 0: as asked." in made.trace
    assert made.line.endswith("(explicit: 65.5 GB states/GPU)")


def test_an_unknown_model_is_not_sharded():
    """Nothing says that it does not fit; the warning says that nothing is known."""
    made = plan("owner/model", L4X4)
    assert (0, None) == (made.method.zero_stage, made.estimate.per_gpu_bytes)
    assert any("parameter count is unknown" in warning for warning in made.warnings)
    assert 3 == plan("owner/model", L4X4, cpu_offload=True).method.zero_stage


def test_one_gpu_is_never_sharded():
    """It has nobody to share with, whatever fits."""
    made = plan("Qwen/Qwen3-32B", ("L4-24GB", 1))
    assert 0 == made.method.zero_stage
    assert "has nobody to share with" in made.trace[2]


def test_a_base_that_is_stored_in_4_bits_is_not_sharded():
    """Each GPU holds its own copy, if that is what is asked for; other packed formats have no peak."""
    packed = ModelFacts(param_count=N, source="counted", quantized="bitsandbytes, 4 bits")
    with pytest.raises(InvalidRequest) as caught:
        plan("owner/model", L4X4, packed, lora_rank=8)
    assert ["method.zero_stage"] == [fault.key for fault in caught.value.faults]
    assert N * 6 // 10 == plan("owner/model", L4X4, packed, lora_rank=8, zero_stage=0).estimate.model_states_bytes
    fp8 = ModelFacts(param_count=N, source="counted", quantized="fp8")
    assert "stored quantised (fp8)" in plan("owner/model", L4X4, fp8, lora_rank=8).peak_text


def test_bf16_is_refused_on_a_gpu_without_it():
    """With the alternative, which is taken."""
    with pytest.raises(InvalidRequest) as caught:
        plan("Qwen/Qwen3-0.6B", ("Tesla T4", 1))
    (fault,) = caught.value.faults
    assert ("method.precision", 'Use precision = "fp32".') == (fault.key, fault.fix)
    assert "fp32" == plan("Qwen/Qwen3-0.6B", ("Tesla T4", 1), precision="fp32").method.precision


@given(
    base=st.sampled_from(["Qwen/Qwen3-0.6B", "Qwen/Qwen3-4B", "Qwen/Qwen3.5-9B", "owner/unknown"]),
    gpus=st.tuples(st.sampled_from(["L4-24GB", "H100-80GB"]), st.integers(1, 8)),
    settings=st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["sft_text", "dpo"]),
            "zero_stage": st.sampled_from(["auto", 0, 2, 3]),
            "precision": st.sampled_from(["bf16", "bf16_mixed", "fp32"]),
            "lora_rank": st.integers(1, 64),
            "load_in_4bit": st.booleans(),
            "cpu_offload": st.booleans(),
            "micro_batch_size": st.integers(1, 8) | st.just("auto"),
            "gradient_accumulation_steps": st.integers(1, 8),
            "global_batch_size": st.integers(1, 256),
            "gradient_checkpointing": st.booleans(),
            "plan_policy": st.sampled_from(["peak", "page"]),
        },
    ),
)
def test_a_pasted_plan_is_the_same_plan(base, gpus, settings):
    """``resolved_parallelism`` among the hyperparameters gives the same eight knobs, whatever was asked."""
    refused = refusal_of(lambda: plan(base, gpus, **settings))
    if refused is not None:
        assert all(fault.key for fault in refused.faults)
        return
    made = plan(base, gpus, **settings)
    again = plan(base, gpus, **{**settings, **made.resolved_parallelism})
    knobs = set(made.resolved_parallelism) - {"zero_stage_requested", "estimate", "trace"}
    assert 8 == len(knobs)
    for knob in knobs:
        assert made.resolved_parallelism[knob] == again.resolved_parallelism[knob]
    assert made.estimate == again.estimate
