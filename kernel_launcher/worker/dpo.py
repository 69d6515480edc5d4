"""Preference training (DPO): TRL's trainer, fed with pairs that are tokenised already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trl import DPOConfig, DPOTrainer

from kernel_launcher.worker.trainer import Planned, settings

if TYPE_CHECKING:
    from kernel_launcher.planner import Plan


class Dpo(Planned, DPOTrainer):
    """TRL's trainer for ``prompt_ids``, ``chosen_ids`` and ``rejected_ids``."""

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        """As it is: the constructor would tokenise it again."""
        return dataset


def dpo_trainer(plan: Plan, *, output_dir: str, reference: Any, **kwargs: Any) -> Dpo:
    """The trainer of one rank; the process group exists if there is more than one.

    Args:
        plan: What was decided.
        output_dir: Where TRL may write; nothing is written.
        reference: The base model as this rank holds it, frozen; None for an adapter, which is switched off instead.
            Without one TRL would load it again, from the path in the model's configuration.
        kwargs: The trainer's own.
    """
    return Dpo(plan=plan, args=dpo_config(plan, output_dir=output_dir), ref_model=reference, **kwargs)


def dpo_config(plan: Plan, *, output_dir: str) -> DPOConfig:
    """The plan in TRL's words."""
    method = plan.method
    return DPOConfig(
        **settings(plan, output_dir=output_dir),
        beta=method.beta,
        loss_type=[method.loss_type],
        # Of the losses, exo_pair alone is not defined without: the value of its paper (Ji et al. 2024).
        label_smoothing=1e-3 if method.loss_type == "exo_pair" else 0.0,
    )
