"""Kinds of GPUs by name: memory as sold and as the driver shows it, bfloat16, and how they are joined.

Memory that the driver shows: NVIDIA's and PyTorch's own print-outs; L4, A10G, RTX 4090, B200 and MI300X are not
sourced and rounded down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_launcher.planner.inputs import Link


@dataclass(frozen=True, slots=True)
class GpuKind:
    """One kind of GPU.

    Attributes:
        sold_gb: Memory as sold, in decimal GB.
        visible_gib: Memory as the driver shows it, in GiB.
        link: How several in one machine are joined.
        word: Word of the driver's name that tells the kind; empty where the name here is the driver's own.
        bf16: Whether it computes in bfloat16.
        bf16_tflops: Dense bfloat16 of its matrix units, by the maker's data sheet; 0 where that is not sourced.
    """

    sold_gb: int
    visible_gib: float
    link: Link
    word: str = ""
    bf16: bool = True
    bf16_tflops: int = 0

    @property
    def sold_bytes(self) -> int:
        return self.sold_gb * 10**9

    @property
    def visible_bytes(self) -> int:
        return int(self.visible_gib * 2**30)


KINDS = {
    "L4-24GB": GpuKind(24, 22.0, "pcie", "L4", bf16_tflops=121),
    "A10G-24GB": GpuKind(24, 22.0, "pcie", "A10G"),
    "A100-80GB": GpuKind(80, 79.2, "nvlink", "A100", bf16_tflops=312),
    "H100-80GB": GpuKind(80, 79.19, "nvlink", "H100", bf16_tflops=989),
    "L40S-48GB": GpuKind(48, 44.4, "pcie", "L40S", bf16_tflops=362),
    "H200-141GB": GpuKind(141, 139.0, "nvlink", "H200", bf16_tflops=989),
    "MI300X-192GB": GpuKind(192, 191.0, "nvlink", "MI300X", bf16_tflops=1307),
    "Tesla T4": GpuKind(16, 14.56, "pcie", bf16=False),
    "NVIDIA GeForce RTX 4090": GpuKind(24, 23.5, "pcie"),
    "NVIDIA A100-SXM4-40GB": GpuKind(40, 39.4, "nvlink", bf16_tflops=312),
    "NVIDIA B200": GpuKind(180, 178.0, "nvlink", bf16_tflops=2250),
}


def kind_of(driver_name: str, memory_bytes: int) -> str:
    """The name under which a GPU is asked for: ours where kind and memory are in the table, else the driver's."""
    words = driver_name.replace("-", " ").split()
    for name, kind in KINDS.items():
        # As sold is decimal, as made is binary: "80 GB" are 85.9e9 bytes, less what the driver keeps.
        if kind.word in words and 0.85 < memory_bytes / kind.sold_bytes < 1.1:
            return name
    return driver_name
