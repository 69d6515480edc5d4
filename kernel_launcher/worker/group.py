"""This rank's device, and the process group of all ranks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch import distributed as dist

from kernel_launcher.planner.inputs import CPU
from kernel_launcher.worker.errors import DependencyError

if TYPE_CHECKING:
    from kernel_launcher.planner import Plan
    from kernel_launcher.worker.assignment import Rank

_LEAST_TIMEOUT_SECONDS = 600
_SLOW_DISK_BYTES_PER_SECOND = 100e6


def choose_device(plan: Plan, rank: Rank) -> torch.device:
    """This rank's device, made the current one before anything is put on a device.

    Raises:
        DependencyError: The plan wants GPUs that this torch cannot use.
    """
    kind = plan.resources.gpu_type
    if kind == CPU:
        return torch.device("cpu")
    if torch.cuda.device_count() <= rank.local_rank:
        raise DependencyError(
            f"rank {rank.rank} is planned for {kind}, and torch {torch.__version__} sees "
            f"{torch.cuda.device_count()} GPUs (it was built for CUDA {torch.version.cuda}).",
            'Install a torch that fits the driver, or run on gpu_type = "CPU".',
        )
    device = torch.device("cuda", rank.local_rank)
    torch.cuda.set_device(device)
    return device


def timeout_seconds(plan: Plan) -> float:
    """How long a collective may take: ten minutes, or twice the time that a slow disk takes for a checkpoint."""
    checkpoint = plan.estimate.checkpoint_bytes or 0
    return max(_LEAST_TIMEOUT_SECONDS, 2 * checkpoint / _SLOW_DISK_BYTES_PER_SECOND)


def join(plan: Plan, rank: Rank, device: torch.device) -> None:
    """Meet the other ranks; a single rank has nobody to meet.

    Ours rather than accelerate's, which gives gloo no timeout of ours.
    """
    if rank.world_size > 1:
        on_gpu = device.type == "cuda"
        # With cpu_offload the norm of gradients that lie in host memory is summed there.
        on_gpus = "cuda:nccl,cpu:gloo" if plan.method.cpu_offload else "nccl"
        dist.init_process_group(
            on_gpus if on_gpu else "gloo",
            timeout=timedelta(seconds=timeout_seconds(plan)),
            device_id=device if on_gpu else None,
        )


def leave() -> None:
    """End the process group; after a failure it must be left alone, for it would wait for ranks that are gone."""
    if dist.is_initialized():
        dist.destroy_process_group()
