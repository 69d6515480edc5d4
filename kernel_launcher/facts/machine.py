"""GPUs as the driver names them, cores, host memory. No GPU is a value (``CPU``), not an error."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from kernel_launcher.facts.gpus import KINDS, kind_of
from kernel_launcher.planner import Hardware
from kernel_launcher.planner.inputs import CPU

if TYPE_CHECKING:
    from kernel_launcher.facts.gpus import GpuKind
    from kernel_launcher.planner.inputs import Link

AUTO = "auto"

_MOST = 8
_FIRST_WITH_BF16 = (8, 0)  # compute capability of Ampere


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that this process may use: name, memory in bytes and bfloat16, as the driver gives them."""

    name: str
    memory_bytes: int
    bf16: bool = True


def visible_gpus() -> list[Gpu]:
    """The GPUs of this machine, as ``CUDA_VISIBLE_DEVICES`` limits and orders them; empty where there is none."""
    import pynvml

    try:
        by_uuid = driver_gpus()
    except pynvml.NVMLError:
        return []
    return [by_uuid[uuid] for uuid in _chosen(list(by_uuid), os.environ.get("CUDA_VISIBLE_DEVICES"))]


@cache  # asking the driver takes milliseconds, and a plan is made anew with every move of a slider
def driver_gpus() -> dict[str, Gpu]:
    """Every GPU of this machine by UUID, asked for once; a driver that does not answer is asked again.

    Raises:
        NVMLError: There is no driver, or it failed.
    """
    import pynvml

    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return {
            _text(pynvml.nvmlDeviceGetUUID(handle)): Gpu(
                _text(pynvml.nvmlDeviceGetName(handle)),
                int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)) >= _FIRST_WITH_BF16,
            )
            for handle in handles
        }
    finally:
        pynvml.nvmlShutdown()


def _chosen(uuids: list[str], visible: str | None) -> list[str]:
    """As CUDA does: indices or beginnings of UUIDs, up to the first that names none; a repeated one leaves none."""
    if visible is None:
        return uuids
    chosen: list[str] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.isdecimal():
            named = uuids[int(entry) : int(entry) + 1]
        else:
            named = [uuid for uuid in uuids if entry.startswith("GPU-") and uuid.startswith(entry)]
        if len(named) != 1:
            break
        if named[0] in chosen:
            return []
        chosen += named
    return chosen


def this_machine() -> Hardware:
    """What ranks can run on here: its GPUs, or its processor."""
    gpus = visible_gpus()
    kinds = [KINDS.get(type_of(gpu)) for gpu in gpus]
    return Hardware(
        gpu_type=type_of(gpus[0]) if gpus else CPU,
        gpu_memory_bytes=tuple(
            sorted(kind.sold_bytes if kind else gpu.memory_bytes for gpu, kind in zip(gpus, kinds, strict=True))
        ),
        # The driver's total has a part that no process gets; where the table knows that part, it is taken off.
        visible_memory_bytes=tuple(
            sorted(
                min(gpu.memory_bytes, kind.visible_bytes) if kind else gpu.memory_bytes
                for gpu, kind in zip(gpus, kinds, strict=True)
            )
        ),
        bf16=all(gpu.bf16 for gpu in gpus),
        link=_link(gpus[0], kinds[0]) if gpus else None,
        cores=usable_cores(),
        host_memory_bytes=_host_memory(),
    )


def _link(gpu: Gpu, kind: GpuKind | None) -> Link | None:
    if "PCI" in gpu.name.upper():
        return "pcie"
    return kind.link if kind else None


def hardware_for(gpu_type: str, here: Hardware | None = None) -> Hardware | None:
    """The hardware that a ``gpu_type`` names, whether it is here or not; None for an unknown name.

    Args:
        gpu_type: A name in the catalogue, ``auto`` or ``CPU``.
        here: This machine, where it was looked at already.
    """
    here = here or this_machine()
    if gpu_type in (AUTO, here.gpu_type):
        return here
    if gpu_type == CPU:
        return Hardware(gpu_type=CPU, cores=here.cores, host_memory_bytes=here.host_memory_bytes)
    kind = KINDS.get(gpu_type)
    if kind is None:
        return None
    return Hardware(
        gpu_type=gpu_type,
        gpu_memory_bytes=(kind.sold_bytes,) * _MOST,
        visible_memory_bytes=(kind.visible_bytes,) * _MOST,
        bf16=kind.bf16,
        link=kind.link,
        cores=here.cores,
        host_memory_bytes=None,
    )


def gpu_names() -> list[str]:
    """Every ``gpu_type`` that can be asked for."""
    return list(dict.fromkeys([AUTO, CPU, *KINDS, this_machine().gpu_type]))


def type_of(gpu: Gpu) -> str:
    """The catalogue's name of a GPU, or the driver's where the catalogue has none."""
    return kind_of(gpu.name, gpu.memory_bytes)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@cache
def _host_memory() -> int:
    total = int(psutil.virtual_memory().total)
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return min(total, int(Path(limit).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return total


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its container."""
    return max(1, min(len(os.sched_getaffinity(0)), _core_quota()))


@cache
def _core_quota() -> int:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return int(quota) // int(period)
    except (OSError, ValueError):  # no such file, or "max"
        return len(os.sched_getaffinity(0))
