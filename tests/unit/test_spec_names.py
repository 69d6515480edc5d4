"""Names of settings: known, aliased, or answered with the one that was meant."""

from __future__ import annotations

import pytest

from kernel_launcher.errors import InvalidRequest
from kernel_launcher.spec import JobSpec, read_spec
from kernel_launcher.spec.fields import NotYet
from kernel_launcher.spec.names import SECTIONS, locate

# Every name that users of the two documented systems type, and where it is here.
KNOWN = {
    "job": "name output_model resume_from",
    "model": "base revision trust_remote_code",
    "dataset": "id split prompt completion messages text chosen rejected system",
    "method": """type micro_batch_size gradient_accumulation_steps global_batch_size data_parallel_size num_epochs
        max_steps max_seq_length max_length max_prompt_length lora_rank lora_alpha lora_dropout lora_target_modules
        load_in_4bit learning_rate beta loss_type packing checkpoint_every checkpoint_keep val_split_ratio
        eval_strategy eval_steps load_best_model_at_end metric_for_best_model greater_is_better
        early_stopping_patience early_stopping_threshold ddp_find_unused_parameters optim lr_scheduler_type
        warmup_steps warmup_ratio
        weight_decay max_grad_norm seed precision gradient_checkpointing zero_stage cpu_offload tensor_parallel_size
        context_parallel_size pipeline_parallel_size expert_parallel_size use_liger use_unsloth script args""",
    "resources": "gpu_type gpu_count gpu_ids python max_restarts grace_seconds",
    "limits": "stall_seconds",
    "huggingface": "repo artifact private",
    "report": "to",
}
ALIASES = {
    "method": "method.type",
    "base_model": "model.base",
    "dataset_id": "dataset.id",
    "batch_size": "method.micro_batch_size",
    "dataset_text_field": "dataset.text",
}
MEANT = {
    "model": "model.base",
    "model_name": "model.base",
    "dataset": "dataset.id",
    "data_files": "dataset.id",
    "split_type": "dataset.split",
    "rename": "dataset.prompt",
    "per_device_train_batch_size": "method.micro_batch_size",
    "num_train_epochs": "method.num_epochs",
    "lora_r": "method.lora_rank",
    "assistant_only_loss": "method.loss_on",
    "train_on_responses_only": "method.loss_on",
    "save_strategy": "method.checkpoint_every",
    "save_steps": "method.checkpoint_every",
    "save_total_limit": "method.checkpoint_keep",
    "resume_from_checkpoint": "job.resume_from",
    "output_dir": "job.name",
    "final_model_dir": "job.name",
    "run_name": "job.name",
    "hf_push": "huggingface.repo",
    "push_to_hub": "huggingface.repo",
    "hub_model_id": "huggingface.repo",
    "hub_strategy": "huggingface.artifact",
    "report_to": "report.to",
    "nproc_per_node": "resources.gpu_count",
}
NEEDLESS = ("full_finetuning", "format", "shuffle", "num_samples", "logging_steps", "device_map", "hf_token", "token")


def refusal(**settings: object) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read_spec({"base_model": "owner/model"}, settings=settings)
    return str(caught.value)


@pytest.mark.parametrize(
    "dotted", [f"{section}.{name}" for section, names in KNOWN.items() for name in names.split()]
)
def test_every_documented_name_is_known_bare_and_dotted(dotted):
    """A setting can be written under its section, and by its bare name."""
    assert dotted == locate(dotted)
    bare = dotted.partition(".")[2]
    assert (ALIASES.get(bare, dotted)) == locate(bare)


def test_the_list_above_is_complete():
    """A field that is not in the list of documented names is one of ours, and is meant to be."""
    ours = {f"{section}.{name}" for section, model in SECTIONS.items() for name in model.model_fields}
    documented = {f"{section}.{name}" for section, names in KNOWN.items() for name in names.split()}
    assert {
        "method.loss_on",
        "method.dataloader_num_workers",
        "method.plan_policy",
        "method.sample_prompts",
        "method.sample_every",
        "method.too_long",
        "method.chat_template",
        "method.allow",
    } == ours - documented


@pytest.mark.parametrize(("alias", "dotted"), ALIASES.items())
def test_aliases_are_the_setting_itself(alias, dotted):
    """Another name for a setting sets it."""
    assert dotted == locate(alias)
    section, _, name = dotted.partition(".")
    value = {"micro_batch_size": 2, "type": "sft_text"}.get(name, "x")
    spec = read_spec({"base_model": "owner/model"}, settings={alias: value})
    assert value == getattr(getattr(spec, section), name)


@pytest.mark.parametrize(("name", "dotted"), MEANT.items())
def test_names_of_other_systems_are_answered_with_ours(name, dotted):
    """What people type elsewhere is refused with the name that it has here."""
    assert f"Did you mean {dotted}?" in refusal(**{name: "x"})


@pytest.mark.parametrize("name", NEEDLESS)
def test_what_nobody_need_set_says_why(name):
    """A setting of other systems that has no use here is refused with the reason, not with a wrong guess."""
    said = refusal(**{name: "x"})
    assert "no such setting: " in said
    assert "Leave it out" in said


@pytest.mark.parametrize(
    ("typo", "dotted"),
    [
        ("lora_rnk", "method.lora_rank"),
        ("learning_rat", "method.learning_rate"),
        ("LORA_RANK", "method.lora_rank"),
        ("microbatch_size", "method.micro_batch_size"),
        ("dataset.lora_rank", "method.lora_rank"),
        ("method.gpu_count", "resources.gpu_count"),
        ("modl.base", "model.base"),
    ],
)
def test_a_typo_or_a_wrong_section_gets_the_nearest_name(typo, dotted):
    """A name that is off by a letter, a case or a section is answered with the right one."""
    assert f"Did you mean {dotted}?" in refusal(**{typo: 1})


def test_a_name_like_no_other_gets_the_sections():
    """Where nothing is near, the sections are listed, and no wild guess is made."""
    said = refusal(xyzzy=1)
    assert "Did you mean" not in said
    assert "Sections are: method, job, model, dataset, resources, limits, huggingface, report." in said


def test_every_field_has_a_line_of_help():
    """Help, completion and refusals all print a field's description."""
    bare = [
        f"{section}.{name}"
        for section, model in SECTIONS.items()
        for name, field in model.model_fields.items()
        if not (field.description and not field.description.endswith("."))
    ]
    assert [] == bare


def test_every_section_of_a_job_has_its_place():
    """The spec and the table of sections cannot drift apart."""
    assert {name: field.annotation for name, field in JobSpec.model_fields.items()} == SECTIONS


def test_what_is_not_built_says_what_to_do_now():
    """A mark names the feature and ends its advice like a sentence."""
    marks = [
        mark
        for model in SECTIONS.values()
        for field in model.model_fields.values()
        for mark in field.metadata
        if isinstance(mark, NotYet)
    ]
    assert len(marks) > 20
    assert all(mark.feature and mark.instead.endswith(".") for mark in marks)
