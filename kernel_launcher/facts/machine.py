"""GPUs as the driver names them, cores, host memory. No GPU is a value (``CPU``), not an error."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from kernel_launcher.planner import Hardware
from kernel_launcher.planner.inputs import CPU

AUTO = "auto"

# Type name: (memory as sold in GB, a word of the driver's name). A GPU that is elsewhere counts with memory as sold.
CATALOGUE = {
    "L4-24GB": (24, "L4"),
    "A10G-24GB": (24, "A10G"),
    "A100-80GB": (80, "A100"),
    "H100-80GB": (80, "H100"),
    "L40S-48GB": (48, "L40S"),
    "H200-141GB": (141, "H200"),
    "MI300X-192GB": (192, "MI300X"),
}
_MOST = 8


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that this process may use: its name and its memory in bytes, as the driver gives them."""

    name: str
    memory_bytes: int


def visible_gpus() -> list[Gpu]:
    """The GPUs of this machine, as ``CUDA_VISIBLE_DEVICES`` limits and orders them; empty where there is none."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        by_uuid = {
            _text(pynvml.nvmlDeviceGetUUID(handle)): Gpu(
                _text(pynvml.nvmlDeviceGetName(handle)), int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
            )
            for handle in handles
        }
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()
    return [by_uuid[uuid] for uuid in _chosen(list(by_uuid), os.environ.get("CUDA_VISIBLE_DEVICES"))]


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
    return Hardware(
        gpu_type=type_of(gpus[0]) if gpus else CPU,
        gpu_memory_bytes=tuple(sorted(gpu.memory_bytes for gpu in gpus)),
        cores=usable_cores(),
        host_memory_bytes=_host_memory(),
    )


def hardware_for(gpu_type: str) -> Hardware | None:
    """The hardware that a ``gpu_type`` names, whether it is here or not; None for an unknown name."""
    here = this_machine()
    if gpu_type in (AUTO, here.gpu_type):
        return here
    if gpu_type == CPU:
        return Hardware(gpu_type=CPU, cores=here.cores, host_memory_bytes=here.host_memory_bytes)
    if gpu_type in CATALOGUE:
        memory = CATALOGUE[gpu_type][0] * 10**9
        return Hardware(
            gpu_type=gpu_type,
            gpu_memory_bytes=(memory,) * _MOST,
            cores=here.cores,
            host_memory_bytes=here.host_memory_bytes,
        )
    return None


def gpu_names() -> list[str]:
    """Every ``gpu_type`` that can be asked for."""
    return list(dict.fromkeys([AUTO, CPU, *CATALOGUE, this_machine().gpu_type]))


def type_of(gpu: Gpu) -> str:
    """The catalogue's name of a GPU, or the driver's where the catalogue has none."""
    words = gpu.name.replace("-", " ").split()
    for name, (sold, word) in CATALOGUE.items():
        if word in words and 0.85 < gpu.memory_bytes / (sold * 1e9) < 1.1:
            return name
    return gpu.name


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


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
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return cores
