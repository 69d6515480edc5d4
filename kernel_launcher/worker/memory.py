"""Memory that this rank holds: now, and at most so far."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, NamedTuple

import psutil

if TYPE_CHECKING:
    import torch


class Memory(NamedTuple):
    """Bytes held now, and the most so far."""

    now: int
    peak: int


def host_memory() -> Memory:
    """Resident memory of this process."""
    kib_to_bytes = 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kib_to_bytes
    return Memory(psutil.Process().memory_info().rss, peak)


def gpu_memory(device: torch.device) -> Memory:
    """What the driver counts on this rank's GPU.

    torch's allocator knows its own blocks only. The rest (context, NCCL buffers, other processes) is the difference
    to what the driver sees; it is steady, so the allocator's peak plus that difference is the GPU's peak.
    """
    import torch

    free, total = torch.cuda.mem_get_info(device)
    outside = total - free - torch.cuda.memory_reserved(device)
    return Memory(total - free, torch.cuda.max_memory_reserved(device) + outside)
