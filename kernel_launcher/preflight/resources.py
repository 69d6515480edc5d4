"""Whether this machine has what the job asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_launcher.errors import Fault
from kernel_launcher.facts import gpu_names, hardware_for
from kernel_launcher.facts.machine import this_machine
from kernel_launcher.secrets import shown

if TYPE_CHECKING:
    from kernel_launcher.planner import Hardware
    from kernel_launcher.spec import JobSpec


def check_resources(spec: JobSpec, *, to_run: bool) -> tuple[Hardware, list[Fault]]:
    """The hardware to plan for, and what is wrong with it.

    Args:
        spec: What was asked.
        to_run: Whether the job is to run here; a plan may be made for a machine that is elsewhere.
    """
    asked = spec.resources
    here = this_machine()
    hardware = hardware_for(asked.gpu_type, here)
    if hardware is None:
        known = gpu_names()
        near = next((name for name in known if name.lower().startswith(asked.gpu_type.lower())), None)
        reason = "no such kind of GPU is known."
        fix = f"Did you mean {near}?" if near else f"Known are: {', '.join(known)}."
        return here, [Fault("resources.gpu_type", shown("gpu_type", asked.gpu_type), reason, fix)]
    faults = []
    if to_run and not hardware.is_cpu and hardware.gpu_type != here.gpu_type:
        reason = f"this machine has {_described(here)}."
        faults.append(Fault("resources.gpu_type", repr(asked.gpu_type), reason, 'Use gpu_type = "auto" to run here.'))
    elif to_run:
        faults += _count_faults(spec, hardware)
    if hardware.is_cpu and spec.method.cpu_offload:
        reason = "it parks what a GPU would hold in host memory, and ranks on the processor hold it there anyway."
        faults.append(Fault("method.cpu_offload", "True", reason, "Leave it out."))
    return hardware, faults


def _count_faults(spec: JobSpec, hardware: Hardware) -> list[Fault]:
    ids, count = spec.resources.gpu_ids, spec.resources.gpu_count
    if ids is not None and hardware.is_cpu:
        return [Fault("resources.gpu_ids", shown("gpu_ids", ids), "there is no GPU to choose.", "Leave it out.")]
    if ids is not None and (beyond := [index for index in ids if index >= hardware.slots]):
        reason = f"this machine has {_described(hardware)}, so there is no GPU {beyond[0]}."
        return [
            Fault("resources.gpu_ids", shown("gpu_ids", ids), reason, f"Indices go from 0 to {hardware.slots - 1}.")
        ]
    if count is not None and count > hardware.slots:
        reason = f"this machine has {_described(hardware)}."
        fix = f"Use {hardware.slots} at most: each rank needs one of its own."
        return [Fault("resources.gpu_count", str(count), reason, fix)]
    return []


def _described(hardware: Hardware) -> str:
    if hardware.is_cpu:
        return f"no GPU and {hardware.cores} processor core{'s' if hardware.cores != 1 else ''}"
    return f"{hardware.slots} x {hardware.gpu_type}"
