"""Anything that a person can type gives a plan or a refusal with a key, never another exception."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veri_jupyter
from kernel_launcher.facts import gpu_names
from kernel_launcher.facts.catalogue import model_ids
from kernel_launcher.spec.fields import Method
from tests.unit.toys import refusal_of

if TYPE_CHECKING:
    from kernel_launcher.planner import Plan

BASES = st.sampled_from([*model_ids(), "owner/unknown", "./nowhere", "", "a b", "x" * 300])
GPUS = st.sampled_from([*gpu_names(), "H100", "gtx", ""])
SIZES = st.integers(-1, 70) | st.integers(10**6, 10**10)
VALUES = (
    st.none() | st.booleans() | SIZES | st.floats() | st.text(max_size=5) | st.lists(st.text(max_size=3), max_size=2)
)
KNOBS = {
    "micro_batch_size": SIZES | st.just("auto"),
    "gradient_accumulation_steps": SIZES,
    "global_batch_size": SIZES,
    "data_parallel_size": st.integers(1, 8),
    "gpu_count": st.integers(0, 9),
    "zero_stage": st.sampled_from(["auto", 0, 1, 2, 3]),
    "precision": st.sampled_from(["bf16", "bf16_mixed", "fp32", "fp16", "fp8"]),
    "cpu_offload": st.booleans(),
    "gradient_checkpointing": st.booleans(),
    "lora_rank": SIZES,
    "load_in_4bit": st.booleans(),
    "use_liger": st.booleans(),
    "packing": st.booleans(),
    "type": st.sampled_from(["sft_text", "dpo", "grpo"]),
    "max_seq_length": SIZES,
    "max_length": SIZES,
    "optim": st.sampled_from(["adamw_torch_fused", "adamw_torch", "adafactor", "sgd"]),
    "plan_policy": st.sampled_from(["peak", "page"]),
    "lora_target_modules": st.lists(st.sampled_from(["q_proj", "lm_head", "all-linear"]), max_size=2),
}


def shown(made: Plan) -> None:
    """Everything that a plan can be asked for."""
    json.dumps(made.to_json())
    assert made.describe()
    assert made.html()
    made.alternatives()


def tried(base: str, gpu_type: str, asked: dict[str, Any]) -> None:
    refused = refusal_of(lambda: shown(veri_jupyter.plan(base, gpu_type=gpu_type, **asked)))
    assert refused is None or all(fault.key and fault.reason for fault in refused.faults)


@settings(max_examples=200)
@given(BASES, GPUS, st.fixed_dictionaries({}, optional=KNOBS))
def test_knobs(base, gpu_type, asked):
    """Every knob at values near and far from sense, in any combination, on any GPU, for any model."""
    tried(base, gpu_type, asked)


@given(BASES, GPUS, st.dictionaries(st.sampled_from(sorted(Method.model_fields)), VALUES, max_size=6))
def test_any_value_of_any_setting(base, gpu_type, asked):
    """Values of every type."""
    tried(base, gpu_type, asked)


@pytest.mark.parametrize("gpus", [0, 9, "", "x", "0-9", [0, 0], [], 2.5, True])
def test_gpus(gpus):
    """As a number, a list or text."""
    refused = refusal_of(lambda: veri_jupyter.plan("Qwen/Qwen3-4B", gpu_type="H100-80GB", gpus=gpus))
    assert refused is None or all(fault.key for fault in refused.faults)


def test_a_plan_is_pasted_back_as_keywords():
    """``plan(model, **made.resolved_parallelism)`` is the same plan; its trace is no request to measure."""
    made = veri_jupyter.plan("Qwen/Qwen3-4B", gpu_type="L4-24GB", gpus=4, global_batch_size=64)
    again = veri_jupyter.plan("Qwen/Qwen3-4B", gpu_type="L4-24GB", gpus=4, **made.resolved_parallelism)
    assert made.line.replace("auto", "explicit") == again.line


def test_a_trace_is_asked_for_with_true():
    """Any other word is refused, not taken for a yes."""
    refused = refusal_of(lambda: veri_jupyter.plan("Qwen/Qwen3-4B", gpu_type="H100-80GB", trace="yes"))
    assert refused is not None
    assert ["trace"] == [fault.key for fault in refused.faults]
