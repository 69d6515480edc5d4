"""The sections of a job, field by field: type, default, one line of help.

A field marked ``NotYet`` is a known name whose feature this release does not have: any value that asks for it (one
that is neither the default nor null, zero, false or empty) is refused by name. Where a plan can be made of it all the
same, only a run is refused. Building it means removing the mark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints


@dataclass(frozen=True, slots=True)
class NotYet:
    """Marks a field whose feature is not built.

    Attributes:
        feature: What is missing.
        instead: What to do now.
        planned: Whether a plan can be made of it; then it is refused only to run.
    """

    feature: str
    instead: str
    planned: bool = False


def _no_lookalike(value: Any) -> Any:
    if isinstance(value, bool | float):  # a Literal of numbers lets True and 2.0 pass
        raise ValueError("must be a whole number or 'auto'.")  # noqa: TRY004 - pydantic turns ValueError into a fault
    return value


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Text = Annotated[str, StringConstraints(min_length=1)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_as_tuple)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Length = Annotated[int, Field(ge=8, le=10**9)]
Natural = Annotated[int, Field(ge=0, le=10**9)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# The losses of TRL 1.16's DPO trainer.
DpoLoss = Literal[
    "sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_unpaired",
    "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm",
]  # fmt: skip
JobName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]

_CHECKPOINTS = NotYet("saving checkpoints during the run", "Leave it out: the final model is saved at the end.")
_EVALUATION = NotYet("evaluation during the run", "Leave it out, and compare with Job.generate() at the end.")
_HUB = NotYet("publishing to the hub", "Leave it out, and upload the final folder yourself.")
_WATCH = NotYet("a stall watch with your own limits", "Leave it out.")
_LAYOUT = NotYet("a parallel layout other than data parallel", "Leave it at 1.")


class Section(BaseModel):
    """Base of all sections: frozen, exact types, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=False)


class Job(Section):
    """Who the job is."""

    name: JobName | None = Field(None, description="Name of the job and of its folder")
    output_model: Annotated[JobName | None, NotYet("naming the model apart from the job", "Use name.")] = Field(
        None, description="Name of the trained model"
    )
    resume_from: Annotated[Text | None, NotYet("resuming a job", "Start a new job.")] = Field(
        None, description="Job (and step) to go on from"
    )


class Model(Section):
    """What is trained."""

    base: Text | None = Field(None, description="Folder of the base model, or its id on the hub")
    revision: Text | None = Field(None, description="Branch, tag or commit on the hub")
    trust_remote_code: bool = Field(default=False, description="Run the code that the model's repository ships")


class Dataset(Section):
    """What it learns from, and what the columns are called."""

    id: Text | None = Field(None, description="A file (JSONL, JSON, CSV, Parquet), or a data set's id on the hub")
    split: Text = Field("train", description="Split of a data set on the hub")
    prompt: Text | None = Field(None, description="Column with the prompt")
    completion: Text | None = Field(None, description="Column with the answer")
    messages: Text | None = Field(None, description="Column with the conversation")
    text: Text | None = Field(None, description="Column with plain text")
    chosen: Text | None = Field(None, description="Column with the preferred answer")
    rejected: Text | None = Field(None, description="Column with the other answer")
    system: Text | None = Field(None, description="Column with the system message")


class Method(Section):
    """How it learns."""

    type: Literal["sft_text", "dpo", "grpo", "grpo_harness", "sft_video_gen", "custom_script"] = Field(
        "sft_text", description="Training method"
    )
    learning_rate: Positive | None = Field(None, description="Peak learning rate")
    num_epochs: Positive | None = Field(None, description="Passes over the data")
    max_steps: Count | None = Field(None, description="Optimizer steps; overrides num_epochs")
    max_seq_length: Length | None = Field(None, description="Tokens a row at most")
    too_long: Literal["cut", "drop", "refuse"] = Field("cut", description="What happens to longer rows")
    loss_on: Literal["answers", "last_answer", "all"] = Field("answers", description="Which tokens are trained")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(42, description="Seed of data order, dropout and new weights")

    micro_batch_size: Count | Literal["auto"] | None = Field(
        None, description="Rows each GPU takes at a time; auto is the most that fit"
    )
    gradient_accumulation_steps: Count | None = Field(None, description="Micro-batches before an optimizer step")
    global_batch_size: Count | None = Field(None, description="Rows an optimizer step")
    data_parallel_size: Count | None = Field(None, description="Replicas; equal to the number of GPUs")

    lora_rank: Count | None = Field(None, description="Rank of the LoRA adapter; unset trains all weights")
    lora_alpha: Positive | None = Field(None, description="LoRA scaling; unset equals the rank")
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="Dropout before the adapter")
    lora_target_modules: Texts = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        description="Linear layers that get an adapter",
    )

    precision: Literal["bf16", "bf16_mixed", "fp32"] = Field(
        "bf16", description="Number format of weights and compute"
    )
    gradient_checkpointing: bool = Field(default=True, description="Recompute activations in the backward pass")
    zero_stage: Annotated[Literal["auto", 0, 2, 3], BeforeValidator(_no_lookalike)] = Field(
        "auto", description="What is sharded over the GPUs"
    )
    cpu_offload: bool = Field(default=False, description="Park sharded states in host memory")
    tensor_parallel_size: Annotated[Count, _LAYOUT] = Field(1, description="Always 1")
    context_parallel_size: Annotated[Count, _LAYOUT] = Field(1, description="Always 1")
    pipeline_parallel_size: Annotated[Count, _LAYOUT] = Field(1, description="Always 1")
    expert_parallel_size: Annotated[Count, _LAYOUT] = Field(1, description="Always 1")
    ddp_find_unused_parameters: bool = Field(default=False, description="For models with branches that may not run")

    optim: Literal["adamw_torch_fused", "adamw_torch", "adafactor", "sgd"] = Field(
        "adamw_torch_fused", description="Optimizer"
    )
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup"] = Field(
        "linear", description="Course of the learning rate"
    )
    warmup_steps: Natural | None = Field(None, description="Steps to the peak learning rate")
    warmup_ratio: Share | None = Field(None, description="Share of the run to the peak learning rate")
    weight_decay: NonNegative = Field(0.0, description="Decoupled weight decay")
    max_grad_norm: NonNegative = Field(1.0, description="Gradient norm is clipped here; 0 never clips")
    dataloader_num_workers: Annotated[int, Field(ge=0, le=256)] = Field(
        0, description="Processes a rank that collate batches ahead"
    )

    packing: bool = Field(
        default=False, description="Several rows in one sequence, kept apart; batch sizes count sequences"
    )
    load_in_4bit: Annotated[bool, NotYet("4-bit bases (QLoRA)", "Use lora_rank with a bf16 base.", planned=True)] = (
        Field(default=False, description="Quantise the frozen base")
    )
    use_liger: bool = Field(default=False, description="Liger's fused kernels; on one GPU, needs the liger extra")
    use_unsloth: bool = Field(default=False, description="Unsloth's patched kernels; its releases exclude ours")
    plan_policy: Literal["peak", "page"] = Field(
        "peak", description="Whether the predicted peak corrects the rule for zero_stage; page is the bare rule"
    )

    beta: Positive | None = Field(None, description="DPO: strength of the reference")
    loss_type: DpoLoss | None = Field(None, description="DPO: form of the loss")
    max_length: Length | None = Field(None, description="DPO: tokens of prompt and answer")
    max_prompt_length: Count | None = Field(None, description="DPO: tokens of the prompt")

    checkpoint_every: Annotated[NonNegative | None, _CHECKPOINTS] = Field(None, description="Save cadence; 0 is off")
    checkpoint_keep: Annotated[Natural | None, _CHECKPOINTS] = Field(None, description="Checkpoints to keep")
    val_split_ratio: Annotated[Share | None, _EVALUATION] = Field(None, description="Share of rows held out")
    eval_strategy: Annotated[Literal["no", "steps", "epoch"], _EVALUATION] = Field(
        "no", description="When to evaluate"
    )
    eval_steps: Annotated[Count | None, _EVALUATION] = Field(None, description="Steps between evaluations")
    load_best_model_at_end: Annotated[bool, _EVALUATION] = Field(default=False, description="Keep the best weights")
    metric_for_best_model: Annotated[Text | None, _EVALUATION] = Field(None, description="What best means")
    greater_is_better: Annotated[bool | None, _EVALUATION] = Field(None, description="Direction of that metric")
    early_stopping_patience: Annotated[Natural | None, _EVALUATION] = Field(None, description="Evaluations to wait")
    early_stopping_threshold: Annotated[NonNegative, _EVALUATION] = Field(0.0, description="Least improvement")
    sample_prompts: Annotated[Texts, Field(max_length=8)] = Field(
        (), description="Prompts answered during the run; unset are those of the three rows that it trains on last"
    )
    sample_every: Natural | None = Field(
        None, description="Steps between these answers; unset is a quarter of the run, 0 gives none at all"
    )
    chat_template: Text | None = Field(
        None, description="Name or file of the chat template; unset is the model's own"
    )
    allow: Texts = Field((), description="Findings of the data linter to accept, by code")
    script: Annotated[Text | None, NotYet("custom scripts", 'Use method = "sft_text".')] = Field(
        None, description="Your own training script"
    )
    args: Annotated[Texts, NotYet("custom scripts", 'Use method = "sft_text".')] = Field(
        (), description="Its arguments"
    )


class Resources(Section):
    """Where it runs."""

    gpu_type: Text = Field("auto", description="Kind of GPU; auto is what this machine has")
    gpu_count: Annotated[int, Field(ge=1, le=8)] | None = Field(None, description="Ranks: one a GPU")
    gpu_ids: Annotated[tuple[Natural, ...], BeforeValidator(_as_tuple)] | None = Field(
        None, description="Which GPUs, by index"
    )
    python: Text | None = Field(None, description="Interpreter of the environment that trains")
    max_restarts: Annotated[Natural, NotYet("restarting the ranks", "Leave it at 0.")] = Field(
        0, description="Starts after a failure"
    )
    grace_seconds: Annotated[int, Field(ge=1, le=600)] = Field(
        30, description="From asking the ranks to end to ending them"
    )


class Limits(Section):
    """How long each part may take."""

    stall_seconds: Annotated[Positive | None, _WATCH] = Field(None, description="Without progress, a job is stalled")


class Huggingface(Section):
    """Where the model is published."""

    repo: Annotated[Text | None, _HUB] = Field(None, description="Repository on the hub")
    artifact: Annotated[Literal["merged", "adapter"] | None, _HUB] = Field(None, description="What is published")
    private: Annotated[bool | None, _HUB] = Field(None, description="Whether the repository is private")


class Report(Section):
    """Who else is told."""

    to: Annotated[Texts, NotYet("experiment trackers", "Use Job.metrics().")] = Field(
        (), description="Experiment trackers"
    )
