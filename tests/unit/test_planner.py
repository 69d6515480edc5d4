"""The plan: what is decided, why, and the memory that it takes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_launcher.errors import InvalidRequest
from kernel_launcher.facts.machine import hardware_for
from kernel_launcher.planner import Default, Hardware, ModelFacts, Plan, make_plan
from kernel_launcher.spec import read_spec
from kernel_launcher.spec.names import SAID_BY_PLANS
from tests.unit.toys import refusal_of

# As stored on disk: the tied output embedding is there a second time.
QWEN3_06B = 751_632_384
CPU = Hardware(gpu_type="CPU", cores=4, host_memory_bytes=8_000_000_000)
L4 = Hardware(gpu_type="L4-24GB", gpu_memory_bytes=(24 * 10**9,) * 4, cores=16, host_memory_bytes=64 * 10**9)
H100 = Hardware(gpu_type="H100-80GB", gpu_memory_bytes=(80 * 10**9,) * 16, cores=16, host_memory_bytes=10**12)
SMALL = ModelFacts(param_count=QWEN3_06B, source="safetensors headers", max_length=40_960)


def plan(hardware: Hardware = L4, model: ModelFacts = SMALL, **settings: Any) -> Plan:
    return make_plan(read_spec({"base_model": "owner/model", **settings}), hardware, model)


def batch(made: Plan) -> tuple[int | None, ...]:
    m = made.method
    return m.micro_batch_size, m.gradient_accumulation_steps, m.global_batch_size, m.data_parallel_size


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (1, 1, 4, 4)),
        ({"gpu_count": 2}, (1, 1, 2, 2)),
        ({"gpu_ids": [3, 1]}, (1, 1, 2, 2)),
        ({"gpu_count": 2, "micro_batch_size": 4}, (4, 1, 8, 2)),
        ({"gpu_count": 2, "micro_batch_size": 4, "gradient_accumulation_steps": 3}, (4, 3, 24, 2)),
        ({"gpu_count": 2, "micro_batch_size": 4, "global_batch_size": 64}, (4, 8, 64, 2)),
        ({"gpu_count": 2, "global_batch_size": 64}, (1, 32, 64, 2)),
        ({"gpu_count": 2, "global_batch_size": 8, "gradient_accumulation_steps": 4}, (1, 4, 8, 2)),
        ({"data_parallel_size": 4}, (1, 1, 4, 4)),
    ],
)
def test_batches_follow_from_one_another(settings, expected):
    """Micro batch, accumulation and global batch: what is left open is derived, with the ranks that were decided."""
    assert expected == batch(plan(**settings))


@given(
    ranks=st.integers(1, 8), micro=st.none() | st.integers(1, 64), accumulation=st.none() | st.integers(1, 64),
    total=st.none() | st.integers(1, 4096),
)  # fmt: skip
def test_a_planned_batch_always_multiplies(ranks, micro, accumulation, total):
    """Whatever is asked, a plan's batch is micro x accumulation x ranks and what was asked; or it is refused."""
    asked = {"micro_batch_size": micro, "gradient_accumulation_steps": accumulation, "global_batch_size": total}
    refused = refusal_of(lambda: plan(H100, gpu_count=ranks, **asked))
    if refused is not None:
        assert ["method.global_batch_size"] == [fault.key for fault in refused.faults]
        return
    made = plan(H100, gpu_count=ranks, **asked)
    got_micro, got_accumulation, got_total, got_ranks = batch(made)
    assert got_micro * got_accumulation * got_ranks == got_total
    assert (micro or 1, accumulation or got_accumulation, total or got_total, ranks) == batch(made)


@pytest.mark.parametrize("settings", [{"global_batch_size": 7}, {"data_parallel_size": 3}])
def test_what_does_not_fit_the_ranks_that_are_here_is_refused(settings):
    """Without a number of GPUs in the spec, the sizes are held against those that the machine has."""
    with pytest.raises(InvalidRequest):
        plan(**settings)


@pytest.mark.parametrize(
    ("hardware", "ranks", "reason"),
    [
        (CPU, 2, "no GPU here: 2 ranks on the processor."),
        (Hardware(gpu_type="CPU", cores=1, host_memory_bytes=1), 1, "no GPU here: 1 rank on the processor."),
        (L4, 4, "every L4-24GB here."),
        (H100, 8, "of the 16 x H100-80GB here; a job takes 8 at most."),
    ],
)
def test_without_a_number_all_gpus_are_taken(hardware, ranks, reason):
    """Every GPU up to eight, or two ranks on a processor; and the plan says so."""
    made = plan(hardware)
    assert ranks == made.world_size == made.resources.gpu_count
    assert hardware.gpu_type == made.resources.gpu_type
    assert Default("gpu_count", ranks, reason) == made.defaults[0]


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ({}, 5e-5),
        ({"model": replace(SMALL, param_count=1_000_000_000)}, 2e-5),
        ({"model": replace(SMALL, param_count=None)}, 2e-5),
        ({"type": "dpo"}, 5e-6),
        ({"lora_rank": 8, "type": "dpo"}, 5e-5),
        ({"lora_rank": 8}, 2e-4),
        ({"learning_rate": 1e-3}, 1e-3),
        ({"lora_rank": 8, "learning_rate": 1.0}, 1.0),
    ],
)
def test_the_learning_rate_depends_on_method_adapter_and_size(settings, rate):
    """More for an adapter than for all weights, and for a small model's, unless somebody says otherwise."""
    assert rate == plan(**settings).method.learning_rate


def test_each_default_is_said_with_its_reason():
    """What nobody set is printed with why it is so; what somebody set is not."""
    said = {default.key: str(default) for default in plan(lora_rank=8).defaults}
    assert {
        "gpu_count": "gpu_count = 4: every L4-24GB here.",
        "micro_batch_size": "micro_batch_size = 1: one row at a time; raise it first when the GPUs are not busy.",
        "precision": "precision = bf16: a frozen base in bfloat16, the adapter in float32.",
        "gradient_checkpointing": "gradient_checkpointing = True: a third more compute for most of the activations' "
        "memory.",
        "learning_rate": "learning_rate = 0.0002: usual for a LoRA adapter.",
        "max_seq_length": "max_seq_length = 1024: longer rows are cut.",
        "num_epochs": "num_epochs = 1.0: one pass over the data.",
        "lora_alpha": "lora_alpha = 8.0: equal to lora_rank: a scaling of 1.",
        "checkpoint_every": "checkpoint_every = 0: off: this release saves the final model only.",
    } == said
    everything = plan(
        gpu_count=1,
        micro_batch_size=1,
        precision="bf16",
        gradient_checkpointing=True,
        learning_rate=1e-4,
        max_seq_length=512,
        max_steps=30,
        lora_rank=8,
        lora_alpha=16,
        checkpoint_every=0,
    )
    assert () == everything.defaults


def test_a_packed_job_is_told_in_sequences():
    """A micro-batch of it holds more rows than its size says, and attention is told where they meet by a mask."""
    packed = plan(packing=True, too_long="drop")
    assert "each step trains on 4 sequences over 4 ranks" in " ".join(packed.warnings)
    said = {default.key: default.reason for default in packed.defaults}
    assert said["micro_batch_size"].startswith("one sequence at a time")
    assert "longer rows are left out." == said["max_seq_length"]
    assert "always" == packed.outlook.workload.mask


@pytest.mark.parametrize(("limit", "length"), [(None, 1024), (512, 512), (1024, 1024), (40_960, 1024)])
def test_the_length_is_1024_or_the_models_limit(limit, length):
    """Rows are cut at 1,024 tokens, or sooner where the model was not made for more."""
    assert length == plan(model=ModelFacts(max_length=limit)).method.max_seq_length


def test_steps_stand_instead_of_epochs():
    """With max_steps nobody is told of an epoch."""
    made = plan(max_steps=30)
    assert (30, None) == (made.method.max_steps, made.method.num_epochs)
    assert "num_epochs" not in {default.key for default in made.defaults}


@pytest.mark.parametrize(
    ("settings", "gb"),
    [
        ({}, 6.0),
        ({"precision": "bf16_mixed"}, 12.0),
        ({"precision": "fp32"}, 12.0),
        ({"lora_rank": 8}, 1.5),
        ({"lora_rank": 8, "precision": "bf16_mixed"}, 1.5),
        ({"lora_rank": 8, "precision": "fp32"}, 3.0),
    ],
)
def test_states_of_qwen3_06b(settings, gb):
    """8 bytes a parameter in bf16, 16 with float32 weights, 2 (or 4) for a frozen base: 6.0 GB for Qwen3-0.6B."""
    assert gb == round(plan(**settings).estimate.per_gpu_bytes / 1e9, 1)


def test_an_adapter_is_counted_by_its_layers():
    """Rank x (inputs + outputs) for each layer that is targeted, 16 bytes each, beside the frozen base."""
    model = ModelFacts(param_count=1000, linears={"q_proj": 96, "v_proj": 64, "lm_head": 10**9})
    made = plan(model=model, lora_rank=4, lora_target_modules=["q_proj", "v_proj"])
    assert 2 * 1000 + 16 * 4 * (96 + 64) == made.estimate.model_states_bytes


@pytest.mark.parametrize(("gpu_type", "gb"), [("L4-24GB", 15.3), ("H100-80GB", 54.5)])
def test_the_budget_of_a_gpu(gpu_type, gb):
    """70 % of what is left after 2 GiB for the context and the buffers."""
    hardware = hardware_for(gpu_type)
    assert gb == round(plan(hardware).estimate.budget_bytes / 1e9, 1)


def test_the_budget_of_a_processor_is_shared_by_the_ranks():
    """Ranks on one host share 70 % of its memory."""
    assert 1_400_000_000 == plan(CPU, gpu_count=4).estimate.budget_bytes


def test_the_smallest_gpu_decides():
    """Every rank holds the same, so the smallest GPU is the budget."""
    mixed = Hardware(gpu_type="L4-24GB", gpu_memory_bytes=(16 * 10**9, 24 * 10**9), cores=2, host_memory_bytes=1)
    assert 16 * 10**9 == plan(mixed).estimate.gpu_memory_bytes


def test_the_plan_line():
    """The line that both documented systems print, letter by letter."""
    settings = {"gpu_count": 4, "micro_batch_size": 2, "global_batch_size": 32, "precision": "bf16_mixed"}
    assert (
        "plan: dp=4 zero_stage=0 tp=1 cp=1 mbs=2 grad_acc=4 gbs=32 precision=bf16_mixed gradient_checkpointing=on "
        "(auto: 12.0 GB states/GPU)"
    ) == plan(**settings).line
    assert plan(zero_stage=0, gradient_checkpointing=False).line.endswith(
        "gradient_checkpointing=off (explicit: 6.0 GB states/GPU)"
    )
    assert plan(model=ModelFacts()).line.endswith("(auto: states unknown)")


def test_what_was_decided_can_be_submitted_again():
    """``resolved_parallelism`` has the knobs as they are submitted: pinning them gives the same plan."""
    made = plan(global_batch_size=32)
    resolved = made.resolved_parallelism
    knobs = {key: value for key, value in resolved.items() if key not in SAID_BY_PLANS}
    assert 8 == len(knobs)
    for pasted in (knobs, resolved):
        again = plan(hyperparameters=pasted).resolved_parallelism
        assert knobs == {key: again[key] for key in knobs}
    assert "auto" == resolved["zero_stage_requested"]
    assert QWEN3_06B == resolved["estimate"]["param_count"]
    assert "safetensors headers" == resolved["estimate"]["param_count_source"]


SHORT = ModelFacts(param_count=1, max_length=512)
PCIE = replace(L4, link="pcie")
SMALL_HOST = replace(L4, host_memory_bytes=10**9)
FULL, PIN, UNKNOWN, LONG, TINY, HOST = (
    "rounds most updates away",
    "set global_batch_size to pin it",
    "parameter count is unknown",
    "of 512 tokens",
    "over PCIe",
    "into host memory",
)
ONE = {"gpu_count": 1}


@pytest.mark.parametrize(
    ("hardware", "model", "settings", "told"),
    [
        (L4, SMALL, {}, [PIN]),
        (L4, SMALL, {"optim": "adafactor"}, [FULL, PIN]),
        (L4, SMALL, {"optim": "adafactor", "lora_rank": 8}, [PIN]),
        (L4, SMALL, {"precision": "bf16_mixed"}, [PIN]),
        (L4, SMALL, {"lora_rank": 8}, [PIN]),
        (L4, SMALL, {"lora_rank": 8, "micro_batch_size": 2}, [PIN]),
        (L4, SMALL, {"lora_rank": 8, **ONE}, []),
        (L4, SMALL, {"lora_rank": 8, "global_batch_size": 4}, []),
        (L4, ModelFacts(), {"lora_rank": 8, **ONE}, [UNKNOWN]),
        (L4, SHORT, {"lora_rank": 8, **ONE, "max_seq_length": 2048}, [LONG]),
        (L4, SHORT, {"lora_rank": 8, **ONE, "type": "dpo", "max_length": 2048}, [LONG]),
        (L4, SHORT, {"optim": "sgd", **ONE, "max_seq_length": 2048}, [LONG]),
        (L4, SHORT, {"lora_rank": 8, **ONE, "max_seq_length": 512}, []),
        (PCIE, SMALL, {"optim": "sgd", "global_batch_size": 4}, [TINY]),
        (PCIE, SMALL, {"optim": "sgd", "global_batch_size": 32}, []),
        (PCIE, SMALL, {"optim": "sgd", "global_batch_size": 32, "micro_batch_size": 8}, []),
        (PCIE, SMALL, {"lora_rank": 8, "global_batch_size": 4}, []),
        (PCIE, SMALL, {"optim": "sgd", **ONE}, []),
        (SMALL_HOST, SMALL, {"optim": "sgd", "global_batch_size": 4}, [HOST]),
        (SMALL_HOST, SMALL, {"optim": "sgd", **ONE}, []),
        (replace(L4, host_memory_bytes=None), SMALL, {"optim": "sgd", "global_batch_size": 4}, []),
    ],
)
def test_warnings(hardware, model, settings, told):
    """A person is told what they would want to know before the start, and nothing that they have settled."""
    warnings = plan(hardware, model, **settings).warnings
    said = " ".join(warnings)
    assert told == [words for words in (UNKNOWN, HOST, FULL, LONG, PIN, TINY) if words in said]
    assert len(told) == len(warnings)


def test_a_batch_that_grew_with_the_gpus_is_said_with_its_size():
    """Four GPUs at two rows each train on eight a step, where one trained on two."""
    (warning,) = plan(lora_rank=8, micro_batch_size=2).warnings
    assert warning.startswith("each step trains on 8 rows over 4 ranks, on one it would be 2;")


LORA, OFFLOAD, MORE = (
    "set lora_rank (a frozen base of 2 bytes a parameter)",
    "cpu_offload = true with sharding",
    "more GPUs",
)
BF16, LEAST = 'precision = "bf16"', 'precision = "bf16" is the least already'


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({}, [LORA, OFFLOAD, MORE, LEAST]),
        ({"precision": "bf16_mixed"}, [LORA, OFFLOAD, MORE, BF16]),
        ({"zero_stage": 0}, [LORA, OFFLOAD, "more GPUs with zero_stage = 3", LEAST]),
        ({"lora_rank": 8, "gpu_count": 1}, [OFFLOAD, "more GPUs with zero_stage = 3", LEAST]),
        ({"lora_rank": 8, "gpu_count": 1, "precision": "fp32"}, [OFFLOAD, "more GPUs with zero_stage = 3", BF16]),
    ],
)
def test_over_budget_is_a_warning_with_a_way_out_for_this_very_job(settings, advice):
    """Never refused; and a LoRA job is not told to use LoRA."""
    huge = ModelFacts(param_count=20 * 10**9, source="safetensors headers")
    over = [warning for warning in plan(model=huge, **settings).warnings if "over the budget of 15.3 GB" in warning]
    assert 1 == len(over)
    assert "; ".join(advice) + "." == over[0].partition("15.3 GB: ")[2]


@pytest.mark.parametrize(
    "settings",
    [{}, {"lora_rank": 8, "gpu_ids": [0, 2]}, {"max_steps": 3, "zero_stage": 0, "python": "/usr/bin/python3"}],
)
def test_a_plan_survives_its_file(settings):
    """What a run folder stores is read back as the same plan, through real JSON."""
    made = plan(**settings)
    again = Plan.from_json(json.loads(json.dumps(made.to_json())))
    assert made == again
    assert (made.line, made.to_json()) == (again.line, again.to_json())


def test_a_plan_tells_its_story_in_order():
    """Parameters, budget, decision, the line, the peak; then warnings, then what was filled in."""
    told = plan().describe()
    kinds = [line.partition(":")[0] for line in told]
    order = ["parameters", "budget", "decision", "plan", "peak", "warning", "default"]
    assert kinds == sorted(kinds, key=order.index)
    assert plan().line == told[3]
