"""Supervised fine-tuning: TRL's trainer, fed with rows that are tokenised already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trl import SFTConfig, SFTTrainer

from kernel_launcher.worker.packing import PackedCollator
from kernel_launcher.worker.trainer import Planned, settings

if TYPE_CHECKING:
    from kernel_launcher.planner import Plan


class Sft(Planned, SFTTrainer):
    """TRL's trainer for ``input_ids`` and ``labels``, and ``lengths`` of packed rows."""


def sft_trainer(plan: Plan, *, output_dir: str, processing_class: Any, **kwargs: Any) -> Sft:
    """The trainer of one rank; the process group exists if there is more than one."""
    return Sft(
        plan=plan,
        args=sft_config(plan, output_dir=output_dir),
        processing_class=processing_class,
        data_collator=PackedCollator(processing_class.pad_token_id) if plan.method.packing else None,
        **kwargs,
    )


def sft_config(plan: Plan, *, output_dir: str) -> SFTConfig:
    """The plan in TRL's words."""
    return SFTConfig(
        **settings(plan, output_dir=output_dir),
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,  # of packed rows it would be the lengths
    )
