"""The environment of the launcher and its ranks: the user's, less what belongs to the kernel or another launcher."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_launcher.planner import Plan

# What ipykernel sets for its own sake; the rest of these would make a rank believe in another launch.
_KERNELS_OWN = ("MPLBACKEND", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "PAGER", "GIT_PAGER")
# Accelerate takes a process under mpirun or srun for one of theirs, and waits for the others.
_MPI = ("PMI_", "PMIX_", "OMPI_", "MV2_", "MPI_")
_PREFIXES = (*_MPI, "JPY_", "JUPYTER", "PYDEVD_", "TORCHELASTIC_", "TORCH_ELASTIC_", "ACCELERATE_", "FSDP_", "PET_")
_RANKS_OWN = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip


def job_environment(plan: Plan, cores: int, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that the launcher and its ranks run with.

    Args:
        plan: Decides how many ranks share the cores, and which GPUs they see.
        cores: Processor cores of this machine.
        inherited: What to start from (default: this process's own).
    """
    env = inherited_environment(inherited)
    env["OMP_NUM_THREADS"] = str(_threads(cores // plan.world_size, env.get("OMP_NUM_THREADS", "")))
    env["PYTHONUNBUFFERED"] = "1"
    # One node: everything that the ranks say to each other stays on the loopback interface.
    env["GLOO_SOCKET_IFNAME"] = env["NCCL_SOCKET_IFNAME"] = "lo"
    if plan.resources.gpu_type == "CPU":
        env["CUDA_VISIBLE_DEVICES"] = ""
    elif plan.resources.gpu_ids is not None:
        visible = [entry.strip() for entry in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
        chosen = [visible[index] if visible else str(index) for index in plan.resources.gpu_ids]
        env["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)
    return env


def inherited_environment(inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """The user's variables, without what belongs to the kernel or to another launch.

    Args:
        inherited: What to start from (default: this process's own).
    """
    source = os.environ if inherited is None else inherited
    return {
        name: value
        for name, value in source.items()
        if name not in _KERNELS_OWN and name not in _RANKS_OWN and not name.startswith(_PREFIXES)
    }


def _threads(share: int, asked: str) -> int:
    """A rank's part of the cores, or the fewer that the user wants: more would wait for each other in turn."""
    share = max(1, share)
    return min(share, int(asked)) if asked.isdecimal() and int(asked) else share


def interpreter(spec_python: str | None) -> str:
    """The interpreter that runs a job: the spec's, or this one."""
    return spec_python or sys.executable
