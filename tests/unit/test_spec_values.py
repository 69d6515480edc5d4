"""Values of settings: what is taken, what is refused, and what is never refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.spec import JobSpec, read_spec
from kernel_launcher.spec.fields import NotYet
from kernel_launcher.spec.names import SECTIONS
from kernel_launcher.spec.refusals import run_refusals
from tests.unit.toys import refusal_of

BASE = {"base_model": "owner/model"}


def refused(settings: dict) -> list[str]:
    """The keys that are refused."""
    with pytest.raises(InvalidRequest) as caught:
        read_spec({**BASE, **settings})
    return [fault.key for fault in caught.value.faults]


WRONG = [
    ("lora_rank", ["8", 8.0, True, 0, -1, [8], {"x": 1}, 10**12]),
    ("micro_batch_size", ["2", 2.0, True, 0, -3, "most", [], float("nan")]),
    ("gradient_accumulation_steps", [0, 1.0, "1", False]),
    ("global_batch_size", [0, -8, 8.0]),
    ("max_steps", [0, -1, 30.0, "30"]),
    ("max_seq_length", [0, 7, -1, 1024.0]),
    ("num_epochs", [0, -1.0, float("inf"), float("nan"), "1", True]),
    ("learning_rate", [0, -2e-5, float("nan"), float("inf"), "2e-5", True, [2e-5]]),
    ("seed", [-1, 2**32, 1.5, True]),
    ("lora_dropout", [1, 1.5, -0.1, float("nan")]),
    ("lora_target_modules", ["q_proj", [1], [""], {"q_proj": True}]),
    ("zero_stage", [1, True, False, 2.0, 0.0, 4, "2", "3", -1, [0]]),
    ("precision", ["fp16", "fp8", "BF16", 16, True]),
    ("gradient_checkpointing", [1, 0, "true", "on"]),
    ("optim", ["adamw", "", 1]),
    ("gpu_count", [0, 9, -1, 2.0, "2", True]),
    ("gpu_ids", [[], [0, 0], [-1], ["0"], [0.0], 0, list(range(9))]),
    ("gpu_type", ["", 5, True]),
    ("grace_seconds", [0, 601, 30.0]),
    ("weight_decay", [-0.1, float("nan"), "0"]),
    ("base_model", ["", 5, True, ["a"]]),
    ("trust_remote_code", ["yes", 1]),
    ("name", ["", "a/b", "../up", ".hidden", "-x", "a b", "a\n", "x" * 65, "modèle", 5]),
    ("warmup_ratio", [-0.1, 1.1]),
]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG for value in values])
def test_a_wrong_value_is_refused_under_its_name(name, value):
    """Wrong types, signs, sizes and lookalikes (2.0 and true are no whole numbers) are refused with the key."""
    keys = refused({name: value})
    assert {name.replace("base_model", "base")} == {key.partition(".")[2] for key in keys}


NOT_BUILT = {
    f"{section}.{name}": field
    for section, model in SECTIONS.items()
    for name, field in model.model_fields.items()
    if any(isinstance(mark, NotYet) for mark in field.metadata)
}
ASKING = {
    "job.output_model": "m",
    "job.resume_from": "last",
    "method.zero_stage": 2,
    "method.eval_strategy": "steps",
    "method.too_long": "drop",
    "huggingface.artifact": "adapter",
    "method.metric_for_best_model": "loss",
    "method.script": "train.py",
    "huggingface.repo": "owner/name",
    "method.tensor_parallel_size": 2,
    "method.context_parallel_size": 2,
    "method.pipeline_parallel_size": 2,
    "method.expert_parallel_size": 2,
    **{key: ["x"] for key in ("method.sample_prompts", "method.args", "report.to")},
}


@pytest.mark.parametrize("dotted", NOT_BUILT)
def test_what_is_not_built_is_refused_by_name(dotted):
    """A known setting without its feature is refused, never ignored; also when it is 1, which may mean each step.

    Some can be planned, and are refused only to run.
    """
    value = ASKING.get(dotted, NOT_BUILT[dotted].annotation is bool or 1)
    if value is True or dotted.partition(".")[2] in ("greater_is_better", "private"):
        value = True
    mark = next(mark for mark in NOT_BUILT[dotted].metadata if isinstance(mark, NotYet))
    settings = {**BASE, "lora_rank": 8, dotted: value}
    faults = run_refusals(read_spec(settings)) if mark.planned else refused_by_reading(settings)
    assert [(dotted, "not_in_release")] == [(fault.key, fault.code) for fault in faults]
    assert faults[0].reason.startswith("not in this release: ")


def refused_by_reading(settings: dict) -> tuple[Fault, ...]:
    with pytest.raises(InvalidRequest) as caught:
        read_spec(settings)
    return caught.value.faults


@pytest.mark.parametrize("dotted", NOT_BUILT)
def test_asking_for_nothing_is_never_refused(dotted):
    """Null, the default and (where they are of the type) zero, false and empty go through."""
    field = NOT_BUILT[dotted]
    assert read_spec({**BASE, dotted: None}) == read_spec(BASE)
    neutral = [field.default, 0, 0.0, False, (), []]
    for value in neutral:
        try:
            field_ok = SECTIONS[dotted.partition(".")[0]].model_validate({dotted.partition(".")[2]: value})
        except ValidationError:
            continue
        assert field_ok is not None
        read_spec({**BASE, dotted: value})


def test_neutral_values_of_shared_configs_are_accepted():
    """A portable config that switches everything off, or leaves it automatic, is a config for here, too."""
    spec = read_spec(
        {
            **BASE,
            "zero_stage": "auto",
            "cpu_offload": False,
            "tensor_parallel_size": 1,
            "pipeline_parallel_size": 1,
            "packing": False,
            "checkpoint_every": 0,
            "val_split_ratio": 0.0,
            "eval_strategy": "no",
            "max_restarts": 0,
            "beta": None,
            "resume_from": None,
        }
    )
    assert read_spec(BASE).method.type == spec.method.type


def test_all_faults_come_at_once():
    """One try finds everything that is wrong: unknown names, wrong values, what is not built, what does not fit."""
    keys = refused({"lora_rnk": 8, "max_steps": 0, "gpu_type": "", "report": {"to": 5}, "batch_size": "x"})
    assert {"lora_rnk", "method.max_steps", "resources.gpu_type", "report.to", "method.micro_batch_size"} == set(keys)
    keys = refused({"type": "grpo", "use_unsloth": True, "global_batch_size": 7, "gpu_count": 2, "lora_alpha": 8})
    assert {"method.type", "method.use_unsloth", "method.global_batch_size", "method.lora_alpha"} == set(keys)


def test_aliases_that_disagree_are_refused():
    """Two names of one setting with two values: nobody is asked to guess which one counts."""
    with pytest.raises(InvalidRequest, match="differs from batch_size = 2") as caught:
        read_spec({**BASE, "batch_size": 2, "method": {"micro_batch_size": 4}})
    assert "method.micro_batch_size" == caught.value.faults[0].key
    assert 2 == read_spec({**BASE, "batch_size": 2, "method": {"micro_batch_size": 2}}).method.micro_batch_size


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"global_batch_size": 7, "gpu_count": 2}, "method.global_batch_size"),
        ({"global_batch_size": 7, "gpu_ids": [0, 1]}, "method.global_batch_size"),
        ({"global_batch_size": 8, "gradient_accumulation_steps": 3, "gpu_count": 2}, "method.global_batch_size"),
        ({"data_parallel_size": 4, "gpu_count": 2}, "method.data_parallel_size"),
        ({"lora_dropout": 0.1}, "method.lora_dropout"),
        ({"lora_target_modules": ["q_proj"]}, "method.lora_target_modules"),
        ({"lora_rank": 8, "lora_target_modules": []}, "method.lora_target_modules"),
        ({"warmup_steps": 5, "warmup_ratio": 0.1}, "method.warmup_ratio"),
        ({"gpu_ids": [0, 1], "gpu_count": 3}, "resources.gpu_ids"),
        ({"type": "grpo"}, "method.type"),
        ({"cpu_offload": True, "zero_stage": 0}, "method.cpu_offload"),
        ({"cpu_offload": True, "gpu_count": 1}, "method.cpu_offload"),
        ({"zero_stage": 2, "gpu_count": 1}, "method.zero_stage"),
        ({"zero_stage": 3, "gpu_ids": [1]}, "method.zero_stage"),
        ({"load_in_4bit": True}, "method.load_in_4bit"),
        ({"load_in_4bit": True, "lora_rank": 8, "gpu_count": 2}, "method.load_in_4bit"),
        ({"load_in_4bit": True, "lora_rank": 8, "gpu_count": 2, "zero_stage": 3}, "method.load_in_4bit"),
        ({"use_liger": True, "gpu_count": 2}, "method.use_liger"),
        ({"beta": 0.1}, "method.beta"),
        ({"max_length": 64}, "method.max_length"),
        ({"type": "dpo", "max_seq_length": 64}, "method.max_seq_length"),
        ({"type": "dpo", "loss_on": "all"}, "method.loss_on"),
        ({"type": "dpo", "loss_type": "kto"}, "method.loss_type"),
        ({"micro_batch_size": "auto", "global_batch_size": 7, "gpu_count": 2}, "method.global_batch_size"),
    ],
)
def test_values_that_do_not_go_together_are_refused(settings, key):
    """Each value is fine, together they are not: refused before any model or GPU is touched."""
    assert [key] == refused(settings)


@pytest.mark.parametrize("method", ["grpo", "grpo_harness", "sft_video_gen"])
def test_multi_gpu_keys_are_not_for_methods_with_a_layout_of_their_own(method):
    """Each of them is named, beside the method; at a neutral value none is."""
    knobs = {"zero_stage": 3, "micro_batch_size": 2, "cpu_offload": True, "global_batch_size": 4}
    assert {f"method.{name}" for name in ("type", *knobs)} == set(refused({"type": method, "gpu_count": 2, **knobs}))
    neutral = {"zero_stage": "auto", "micro_batch_size": 1, "cpu_offload": False, "tensor_parallel_size": 1}
    assert ["method.type"] == refused({"type": method, "gpu_count": 2, **neutral})


def test_a_layout_is_multiplied_out():
    """The message has both sides of the equation."""
    settings = {**BASE, "gpu_count": 4, "data_parallel_size": 4, "tensor_parallel_size": 2}
    reasons = {fault.key: fault.reason for fault in refused_by_reading(settings)}
    assert "TP*CP*DP*PP=8 != WORLD_SIZE=4." == reasons["method.data_parallel_size"]
    assert "method.tensor_parallel_size" in reasons


def test_what_a_plan_says_beside_its_knobs_is_taken_and_dropped():
    """``resolved_parallelism`` is pasted back whole, anywhere that a hyperparameter may stand."""
    said = {"estimate": {"param_count": 1}, "trace": ["x"], "zero_stage_requested": "auto"}
    for settings in (said, {"method": said}, {"hyperparameters": said}):
        assert read_spec(BASE) == read_spec({**BASE, **settings})


def test_sizes_that_multiply_are_taken():
    """The batch may be given whole, in parts, or both when they agree."""
    for settings in (
        {"global_batch_size": 8, "gpu_count": 2, "micro_batch_size": 2},
        {"global_batch_size": 8, "gpu_count": 2, "micro_batch_size": 2, "gradient_accumulation_steps": 2},
        {"data_parallel_size": 2, "gpu_count": 2},
        {"micro_batch_size": "auto", "global_batch_size": 8, "gpu_count": 2, "gradient_accumulation_steps": 2},
        {"load_in_4bit": True, "lora_rank": 8, "gpu_count": 2, "zero_stage": 0},
        {"zero_stage": 0, "gpu_count": 1},
        {"type": "dpo", "beta": 0.2, "loss_type": "ipo", "max_length": 64, "max_prompt_length": 32},
    ):
        read_spec({**BASE, **settings})


def test_numbers_of_numpy_and_paths_are_taken_as_what_they_are(tmp_path):
    """Notebooks are full of NumPy scalars, arrays and Path objects; none is a wrong type."""
    spec = read_spec(
        {
            "base_model": tmp_path,
            "lora_rank": np.int64(8),
            "learning_rate": np.float32(0.5),
            "gradient_checkpointing": np.bool_(False),
            "gpu_ids": np.array([0, 1]),
            "lora_target_modules": (np.str_("q_proj"),),
        }
    )
    assert str(tmp_path) == spec.model.base
    assert (8, 0.5, False) == (spec.method.lora_rank, spec.method.learning_rate, spec.method.gradient_checkpointing)
    assert (0, 1) == spec.resources.gpu_ids
    assert ("q_proj",) == spec.method.lora_target_modules
    json.dumps(spec.to_sections())


def test_a_spec_cannot_be_changed():
    """A spec is what was asked; nothing changes it afterwards, and it can be a key."""
    spec = read_spec(BASE)
    with pytest.raises(ValidationError):
        spec.method.lora_rank = 8  # type: ignore[misc]
    with pytest.raises(ValidationError):
        spec.model = spec.model  # type: ignore[misc]
    assert {spec: 1}[read_spec(BASE)] == 1


FULL = {
    **BASE,
    "name": "first",
    "dataset_id": "owner/rows",
    "lora_rank": 8,
    "lora_target_modules": ["q_proj", "v_proj"],
    "learning_rate": 1e-4,
    "gpu_ids": [1, 3],
    "max_steps": 30,
}


def test_a_spec_survives_its_file():
    """What a run folder stores is read back as the same spec, through real JSON."""
    spec = read_spec(FULL)
    assert spec == JobSpec.from_sections(json.loads(json.dumps(spec.to_sections())))


def test_only_what_was_set_is_stored():
    """A stored spec says what was asked, not what this release's defaults were."""
    assert {"model": {"base": "owner/model"}, "method": {"lora_rank": 8}} == read_spec(
        {**BASE, "lora_rank": 8, "seed": 42}
    ).to_sections()


def test_the_fingerprint_is_of_the_work():
    """Same work, same fingerprint, whatever the job is called; any other setting or other rows give another."""
    prints = {
        "as it is": read_spec(FULL).fingerprint("rows"),
        "other rows": read_spec(FULL).fingerprint("other rows"),
        "other model": read_spec({**FULL, "base_model": "owner/other"}).fingerprint("rows"),
        "other rate": read_spec({**FULL, "learning_rate": 2e-4}).fingerprint("rows"),
        "other GPUs": read_spec({**FULL, "gpu_ids": [3, 1]}).fingerprint("rows"),
    }
    assert len(prints) == len(set(prints.values()))
    assert prints["as it is"] == read_spec({**FULL, "name": "second"}).fingerprint("rows")
    assert prints["as it is"] == read_spec(dict(reversed(FULL.items()))).fingerprint("rows")


def test_the_fingerprint_is_stable():
    """A job of last week is found again: the hash depends on nothing but the words of the spec and the data."""
    spec = read_spec({**BASE, "lora_rank": 8, "gpu_ids": [1, 3]})
    assert "14ffd1cc793af9481af94e06e65f7bfee53bf5a45e1473726351e9752828e7c4" == spec.fingerprint("rows")


names = st.sampled_from(
    [*SECTIONS, *(name for model in SECTIONS.values() for name in model.model_fields), "batch_size"]
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates()
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | st.text(), inner, max_size=3)
)


@given(st.dictionaries(names | st.text(), values, max_size=6))
def test_no_dict_ever_does_worse_than_a_refusal(settings):
    """Whatever is in a dict, reading it gives a spec or an InvalidRequest that can be printed and stored."""
    refused = refusal_of(lambda: read_spec(settings, overrides=settings))
    if refused is not None:
        assert refused.faults
        json.dumps(refused.to_json())
    else:
        spec = read_spec(settings, overrides=settings)
        assert spec == JobSpec.from_sections(spec.to_sections())
        spec.fingerprint("")
