"""What our trainers share: TRL's computation, with sharding, number formats, optimizer and reports of our own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist
from torch.distributed.tensor import DTensor
from torch.linalg import vector_norm
from torch.nn.utils import clip_grads_with_norm_

from kernel_launcher.planner.inputs import CPU
from kernel_launcher.worker.loading import META, local
from kernel_launcher.worker.optimizer import own_optimizer
from kernel_launcher.worker.precision import Precision
from kernel_launcher.worker.proof import check_wrapper
from kernel_launcher.worker.steps import TokenCount

if TYPE_CHECKING:
    from kernel_launcher.planner import Plan

_PIECE = 1 << 18
_JUST_UNDER_ONE = math.nextafter(1.0, 0.0)


class Planned:
    """Goes before one of TRL's trainers in the bases of a class.

    Args:
        plan: What was decided.
        kwargs: The trainer's own.
    """

    def __init__(self, *, plan: Plan, **kwargs: Any) -> None:
        self.plan = plan
        super().__init__(**kwargs)
        self.tokens = TokenCount(plan.world_size)
        self.own_losses: list[torch.Tensor] = []
        # The Trainer's word for a model that looks after its own placement and reduction: it must not be wrapped.
        self.is_distributed_loading_by_transformers = plan.method.zero_stage != 0

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """The micro-batches of the next step, counted."""
        batches, items = super().get_batch_samples(*args, **kwargs)  # type: ignore[misc]
        self.tokens.begin(batches)
        self.own_losses.clear()
        return batches, items

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Forward and backward of one micro-batch."""
        loss = super().training_step(*args, **kwargs)  # type: ignore[misc]
        self.own_losses.append(loss)
        return loss

    def get_optimizer_cls_and_kwargs(self, *args: Any) -> Any:
        """Ours where the plan needs it, or else the Trainer's."""
        return own_optimizer(self.plan.method) or super().get_optimizer_cls_and_kwargs(*args)  # type: ignore[misc]

    def _clip_grad_norm(self, model: Any) -> Any:
        weights = [weight for weight in model.parameters() if weight.grad is not None]
        norm = gradient_norm([weight.grad for weight in weights])
        clip_grads_with_norm_(weights, self.plan.method.max_grad_norm, norm)
        return norm

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        if grad_norm is not None:
            return grad_norm
        return gradient_norm([weight.grad for weight in model.parameters() if weight.grad is not None])

    def _move_model_to_device(self, model: Any, device: torch.device) -> None:
        """What has no memory yet is filled later."""
        if not any(parameter.device == META for parameter in model.parameters()):
            super()._move_model_to_device(model, device)  # type: ignore[misc]

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> Any:
        model, batches = super()._prepare_for_training(*args, **kwargs)  # type: ignore[misc]
        check_wrapper(model, self.plan)
        return model, batches


def gradient_norm(gradients: list[torch.Tensor]) -> torch.Tensor:
    """The norm of all gradients together, the same however they are spread.

    On the processor torch adds up a float32 norm in float32: of an embedding's 1.6 million numbers it is wrong by
    6e-5, and of their halves by 3e-5. In float64 it would make a copy of the whole embedding; piece by piece it is
    five times as fast.
    """
    on_cpu = gradients[0].device.type == "cpu"
    exact, piece = (torch.float64, _PIECE) if on_cpu else (torch.float32, None)
    squares = torch.stack([_square(local(gradient), exact, piece) for gradient in gradients])
    sharded = [place for place, gradient in enumerate(gradients) if isinstance(gradient, DTensor)]
    if sharded:
        everywhere = squares[sharded]
        dist.all_reduce(everywhere)
        squares[sharded] = everywhere
    return squares.sum().sqrt().to(torch.float32)


def _square(tensor: torch.Tensor, dtype: torch.dtype, piece: int | None) -> torch.Tensor:
    pieces = tensor.flatten().split(piece) if piece else [tensor]
    return torch.stack([vector_norm(each, dtype=dtype) for each in pieces]).square().sum()


def settings(plan: Plan, *, output_dir: str) -> dict[str, Any]:
    """The plan in the words of transformers' TrainingArguments."""
    method = plan.method
    on_cpu = plan.resources.gpu_type == CPU
    return {
        "output_dir": output_dir,
        "seed": method.seed,
        "per_device_train_batch_size": method.micro_batch_size,
        "gradient_accumulation_steps": method.gradient_accumulation_steps,
        "num_train_epochs": method.num_epochs or 1.0,
        "max_steps": method.max_steps or -1,
        "optim": method.optim,
        "learning_rate": method.learning_rate,
        "lr_scheduler_type": method.lr_scheduler_type,
        "warmup_steps": _warmup(method.warmup_steps, method.warmup_ratio),
        "weight_decay": method.weight_decay,
        "max_grad_norm": method.max_grad_norm,
        # Full bf16 and fp32 need no autocast: the weights' own format is the compute format.
        "bf16": Precision.of(method).autocast,
        "activation_checkpointing": method.gradient_checkpointing,
        # Reentrant checkpointing under DDP marks a parameter ready twice.
        "activation_checkpointing_kwargs": {"use_reentrant": False},
        "use_liger_kernel": method.use_liger,
        "ddp_find_unused_parameters": method.ddp_find_unused_parameters,
        # Without it FSDP2 keeps whole gradients between micro-batches, which is what sharding is to avoid.
        "accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": method.zero_stage != 0}},
        # The group exists already; accelerate must only agree on what it is. Without one it must not look for it.
        "ddp_backend": None if plan.world_size == 1 else "gloo" if on_cpu else "nccl",
        "use_cpu": on_cpu,
        "dataloader_num_workers": method.dataloader_num_workers,
        "max_length": None,
        "logging_steps": 1,
        # The default replaces a loss that is not finite by the mean of the earlier ones: a diverged run shows 0.0.
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def _warmup(steps: int | None, ratio: float | None) -> float:
    """Warm-up as the Trainer takes it: steps from 1 up, below that a share of the run."""
    return min(ratio, _JUST_UNDER_ONE) if ratio else float(steps or 0)
