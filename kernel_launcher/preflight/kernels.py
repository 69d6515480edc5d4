"""Kernels that are not torch's own: whether they can run here, with the versions that were found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_launcher.errors import Fault
from kernel_launcher.preflight.environment import versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_launcher.spec import JobSpec

# What the newest release of Unsloth that was looked at asks for; the train extra begins above each of these.
UNSLOTH = "2026.10.9"
UNSLOTH_LIMITS = {"transformers": "<=5.17.0", "trl": "<=1.15.0", "datasets": "<5.0.0"}


def kernel_faults(spec: JobSpec, *, on_cpu: bool, to_run: bool) -> Iterator[Fault]:
    """Why the kernels that a job asks for cannot be had.

    Args:
        spec: What was asked.
        on_cpu: Whether the ranks run on the processor.
        to_run: Whether it is to run here; a plan for a GPU elsewhere can be made without the package.
    """
    if spec.method.use_unsloth:
        yield _unsloth(versions(spec.resources.python))
    if not spec.method.use_liger:
        return
    if on_cpu:
        reason = "Liger's kernels are Triton's, which run on a GPU alone, and this job is for the processor."
        yield Fault("method.use_liger", "True", reason, "Leave it off.")
    elif to_run and versions(spec.resources.python).get("liger-kernel") is None:
        reason = "the environment that trains lacks liger-kernel."
        fix = 'pip install "veri-jupyter[liger]", or leave it off.'
        yield Fault("method.use_liger", "True", reason, fix, "dependency_error")


def _unsloth(found: dict[str, str | None]) -> Fault:
    limits = ", ".join(f"{name}{limit}" for name, limit in UNSLOTH_LIMITS.items())
    here = ", ".join(f"{name} {found.get(name) or 'missing'}" for name in ("unsloth", *UNSLOTH_LIMITS))
    reason = f"Unsloth {UNSLOTH} asks for {limits}, all older than what this release trains with; found: {here}."
    return Fault("method.use_unsloth", "True", reason, "Leave it off.", "dependency_error")
