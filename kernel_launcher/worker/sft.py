"""Supervised fine-tuning: TRL's trainer, set up from a plan and fed with rows that are tokenised already."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from transformers import PrinterCallback
from trl import SFTConfig, SFTTrainer

from kernel_launcher.planner.inputs import CPU
from kernel_launcher.worker.steps import StepReporter, TokenCount

if TYPE_CHECKING:
    import torch

    from kernel_launcher.planner import Plan
    from kernel_launcher.worker.assignment import Assignment
    from kernel_launcher.worker.reporter import Reporter

_JUST_UNDER_ONE = math.nextafter(1.0, 0.0)


class Trainer(SFTTrainer):
    """TRL's trainer, which also counts tokens and remembers its own losses of the step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tokens = TokenCount(self.accelerator.num_processes)
        self.own_losses: list[torch.Tensor] = []

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """The micro-batches of the next step, counted."""
        batches, items = super().get_batch_samples(*args, **kwargs)
        self.tokens.begin(batches)
        self.own_losses.clear()
        return batches, items

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Forward and backward of one micro-batch."""
        loss = super().training_step(*args, **kwargs)
        self.own_losses.append(loss)
        return loss


def make_trainer(
    assignment: Assignment,
    *,
    model: Any,
    tokenizer: Any,
    rows: Any,
    adapter: Any,
    reporter: Reporter,
) -> Trainer:
    """The trainer of one rank; the process group exists if there is more than one.

    Args:
        assignment: The plan and where its files go.
        model: The base model on its device.
        tokenizer: With a pad token.
        rows: A ``datasets.Dataset`` with ``input_ids`` and ``labels``.
        adapter: A PEFT configuration, or None to train all weights.
        reporter: Where steps are reported.
    """
    trainer = Trainer(
        model=model,
        args=trainer_config(assignment.plan, output_dir=str(assignment.run.root)),
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=adapter,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(StepReporter(trainer.tokens, trainer.own_losses, reporter))
    return trainer


def trainer_config(plan: Plan, *, output_dir: str) -> SFTConfig:
    """The plan in the Trainer's words."""
    method = plan.method
    on_cpu = plan.resources.gpu_type == CPU
    return SFTConfig(
        output_dir=output_dir,
        seed=method.seed,
        per_device_train_batch_size=method.micro_batch_size,
        gradient_accumulation_steps=method.gradient_accumulation_steps,
        num_train_epochs=method.num_epochs or 1.0,
        max_steps=method.max_steps or -1,
        optim=method.optim,
        learning_rate=method.learning_rate,
        lr_scheduler_type=method.lr_scheduler_type,
        warmup_steps=_warmup(method.warmup_steps, method.warmup_ratio),
        weight_decay=method.weight_decay,
        max_grad_norm=method.max_grad_norm,
        # Full bf16 and fp32 need no autocast: the weights' own format is the compute format.
        bf16=method.precision == "bf16_mixed",
        activation_checkpointing=method.gradient_checkpointing,
        # Reentrant checkpointing under DDP marks a parameter ready twice.
        activation_checkpointing_kwargs={"use_reentrant": False},
        ddp_find_unused_parameters=method.ddp_find_unused_parameters,
        # The group exists already; accelerate must only agree on what it is. Without one it must not look for it.
        ddp_backend=None if plan.world_size == 1 else "gloo" if on_cpu else "nccl",
        use_cpu=on_cpu,
        dataloader_num_workers=method.dataloader_num_workers,
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        logging_steps=1,
        # The default replaces a loss that is not finite by the mean of the earlier ones: a diverged run shows 0.0.
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def _warmup(steps: int | None, ratio: float | None) -> float:
    """Warm-up as the Trainer takes it: steps from 1 up, below that a share of the run."""
    return min(ratio, _JUST_UNDER_ONE) if ratio else float(steps or 0)
