"""Names: where a bare setting belongs, and which known one was probably meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from kernel_launcher.spec import fields

if TYPE_CHECKING:
    from collections.abc import Iterable

SECTIONS: dict[str, type[fields.Section]] = {
    "method": fields.Method,
    "job": fields.Job,
    "model": fields.Model,
    "dataset": fields.Dataset,
    "resources": fields.Resources,
    "limits": fields.Limits,
    "huggingface": fields.Huggingface,
    "report": fields.Report,
}

# Other names for the same setting, each accepted wherever the setting is.
ALIASES = {
    "method": "method.type",
    "base_model": "model.base",
    "dataset_id": "dataset.id",
    "batch_size": "method.micro_batch_size",
    "dataset_text_field": "dataset.text",
    "gpus": "resources.gpu_count",
}

# What people type elsewhere, and what it is called here: used for suggestions only.
_ELSEWHERE = {
    "model_name": "model.base",
    "model_name_or_path": "model.base",
    "pretrained_model_name_or_path": "model.base",
    "data": "dataset.id",
    "data_files": "dataset.id",
    "dataset_name": "dataset.id",
    "train_file": "dataset.id",
    "split_type": "dataset.split",
    "rename": "dataset.prompt",
    "per_device_train_batch_size": "method.micro_batch_size",
    "train_batch_size": "method.global_batch_size",
    "num_train_epochs": "method.num_epochs",
    "epochs": "method.num_epochs",
    "lr": "method.learning_rate",
    "lora_r": "method.lora_rank",
    "r": "method.lora_rank",
    "max_tokens": "method.max_seq_length",
    "dtype": "method.precision",
    "torch_dtype": "method.precision",
    "bf16": "method.precision",
    "fp16": "method.precision",
    "assistant_only_loss": "method.loss_on",
    "train_on_responses_only": "method.loss_on",
    "completion_only_loss": "method.loss_on",
    "optimizer": "method.optim",
    "fsdp": "method.zero_stage",
    "deepspeed": "method.zero_stage",
    "load_in_8bit": "method.load_in_4bit",
    "save_strategy": "method.checkpoint_every",
    "save_steps": "method.checkpoint_every",
    "save_total_limit": "method.checkpoint_keep",
    "resume_from_checkpoint": "job.resume_from",
    "run_name": "job.name",
    "output_dir": "job.name",
    "final_model_dir": "job.name",
    "nproc_per_node": "resources.gpu_count",
    "num_gpus": "resources.gpu_count",
    "cuda_visible_devices": "resources.gpu_ids",
    "hf_push": "huggingface.repo",
    "push_to_hub": "huggingface.repo",
    "hub_model_id": "huggingface.repo",
    "hub_strategy": "huggingface.artifact",
    "report_to": "report.to",
}

# What nobody need say here: why, and what to do.
_TOKEN = (
    "the hub's own libraries find the token.",
    "Leave it out; log in with hf auth login, or set the environment variable HF_TOKEN.",
)
NEEDLESS = {
    "token": _TOKEN,
    "hf_token": _TOKEN,
    "use_auth_token": _TOKEN,
    "device_map": (
        "each rank loads the model on its own GPU; device_map would spread one process over several.",
        "Leave it out; gpu_count sets the number of GPUs.",
    ),
    "full_finetuning": ("without lora_rank all weights are trained.", "Leave it out."),
    "format": ("the format is found by looking at every row.", "Leave it out, and name the columns under [dataset]."),
    "shuffle": ("the rows are shuffled, by seed.", "Leave it out."),
    "num_samples": ("all rows are trained on.", "Leave it out, and give the rows that you want."),
    "logging_steps": ("every optimizer step is reported.", "Leave it out."),
}


# What a plan says beside its knobs, so that its ``resolved_parallelism`` can be pasted back whole: taken and dropped.
SAID_BY_PLANS = ("estimate", "trace", "zero_stage_requested")


def locate(key: str) -> str | None:
    """The dotted name of a setting given bare or dotted, by alias or by field; None if there is no such setting."""
    section, dot, name = key.partition(".")
    if dot:
        if section in SECTIONS and name in SECTIONS[section].model_fields:
            return key
        alias = ALIASES.get(name)
        return alias if alias and alias.startswith(f"{section}.") else None
    if key in ALIASES:
        return ALIASES[key]
    for section, model in SECTIONS.items():
        if key in model.model_fields:
            return f"{section}.{key}"
    return None


def nearest(key: str) -> str | None:
    """The known dotted name that was probably meant, or None."""
    bare = key.rpartition(".")[2].lower()
    if bare in _ELSEWHERE:
        return _ELSEWHERE[bare]
    if located := locate(bare):
        return located
    matches = get_close_matches(bare, [*_bare_names(), *ALIASES, *_ELSEWHERE], n=1, cutoff=0.7)
    if not matches:
        return None
    return _ELSEWHERE.get(matches[0]) or locate(matches[0])


def _bare_names() -> Iterable[str]:
    for model in SECTIONS.values():
        yield from model.model_fields
