"""What the machine says of its GPUs."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_launcher.facts import gpu_names, hardware_for
from kernel_launcher.facts.machine import Gpu, type_of, visible_gpus


class NvmlError(Exception):
    """What the driver's library raises."""


UUIDS = [f"GPU-{number}0000000-aaaa-bbbb-cccc-dddddddddddd" for number in range(3)]


def driver(*gpus: tuple[str, int], fails_in: str | None = None) -> Any:
    """A driver with these GPUs, as pynvml shows it."""
    closed = []

    def call(name, answer):
        def ask(*_):
            if name == fails_in:
                raise NvmlError
            return answer(*_)

        return ask

    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: closed.append(True),
        "nvmlDeviceGetCount": lambda: len(gpus),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda index: gpus[index][0],
        "nvmlDeviceGetUUID": lambda index: UUIDS[index],
        "nvmlDeviceGetMemoryInfo": lambda index: SimpleNamespace(total=gpus[index][1]),
        "nvmlDeviceGetCudaComputeCapability": lambda index: (7, 5) if "T4" in str(gpus[index][0]) else (8, 9),
    }
    calls = {name: call(name, answer) for name, answer in answers.items()}
    return SimpleNamespace(NVMLError=NvmlError, closed=closed, **calls)


THREE = driver(("NVIDIA L4", 23_034 << 20), ("NVIDIA H100 80GB HBM3", 81_559 << 20), ("Tesla T4", 15_360 << 20))


@pytest.fixture
def three_gpus(monkeypatch):
    """A machine with an L4, an H100 and a T4."""
    monkeypatch.setitem(sys.modules, "pynvml", THREE)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return THREE


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["L4", "H100", "T4"]),
        ("0,1,2", ["L4", "H100", "T4"]),
        ("2,0", ["T4", "L4"]),
        (" 1 , 2 ", ["H100", "T4"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,9,1", ["L4"]),
        ("0,-1,1", ["L4"]),
        ("0,x,1", ["L4"]),
        ("1,1", []),
        (UUIDS[2], ["T4"]),
        (f"{UUIDS[1]},{UUIDS[0]}", ["H100", "L4"]),
        ("GPU-2", ["T4"]),
        ("GPU-", []),
        ("GPU-9", []),
        (f"GPU-1,{UUIDS[1]}", []),
    ],
)
def test_gpus_are_those_that_cuda_will_show(visible, names, three_gpus, monkeypatch):
    """CUDA_VISIBLE_DEVICES chooses and orders: up to the first entry that names none; a repeated one leaves none."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert names == [
        next(word for word in gpu.name.split() if word in ("L4", "H100", "T4")) for gpu in visible_gpus()
    ]


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo"])
def test_a_driver_that_fails_is_no_gpu(call, monkeypatch):
    """Without a driver, or with a broken one, the machine is a processor; the library is closed again."""
    broken = driver(("NVIDIA L4", 23_034 << 20), fails_in=call)
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    assert [] == visible_gpus()
    assert (call != "nvmlInit") == bool(broken.closed)
    hardware = hardware_for("auto")
    assert hardware is not None
    assert ("CPU", ()) == (hardware.gpu_type, hardware.gpu_memory_bytes)
    assert 1 <= hardware.slots == hardware.cores


@pytest.mark.parametrize(
    ("name", "mib", "known_as"),
    [
        ("NVIDIA L4", 23_034, "L4-24GB"),
        ("NVIDIA A10G", 23_028, "A10G-24GB"),
        ("NVIDIA A100-SXM4-80GB", 81_920, "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", 40_960, "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA H100 80GB HBM3", 81_559, "H100-80GB"),
        ("NVIDIA H100 NVL", 95_830, "NVIDIA H100 NVL"),
        ("NVIDIA L40S", 46_068, "L40S-48GB"),
        ("NVIDIA L40", 46_068, "NVIDIA L40"),
        ("NVIDIA H200", 143_771, "H200-141GB"),
        ("NVIDIA GeForce RTX 4090", 24_564, "NVIDIA GeForce RTX 4090"),
        ("Tesla T4", 15_360, "Tesla T4"),
        ("NVIDIA B200", 183_359, "NVIDIA B200"),
    ],
)
def test_gpus_have_the_names_that_people_ask_for(name, mib, known_as):
    """The catalogue's name where model and memory are the catalogue's, else the driver's."""
    assert known_as == type_of(Gpu(name, mib << 20))


def test_hardware_is_what_is_here_or_what_is_asked_for(three_gpus):
    """``auto`` is this machine, a catalogue name can be planned for anywhere, anything else is unknown."""
    here = hardware_for("auto")
    assert ("L4-24GB", 3) == (here.gpu_type, here.slots)
    assert 16 * 10**9 == here.memory_per_rank(3)
    assert here == hardware_for("L4-24GB")
    there = hardware_for("A100-80GB")
    assert (80 * 10**9,) * 8 == there.gpu_memory_bytes
    assert ("nvlink", None) == (there.link, there.host_memory_bytes)
    assert hardware_for("CPU").is_cpu
    assert hardware_for("H100") is None
    assert {"auto", "CPU", "L4-24GB", "MI300X-192GB"} <= set(gpu_names())


def test_memory_has_two_sizes(three_gpus, monkeypatch):
    """Budgets count what is sold, peaks what a process finds: the driver's total, less what it keeps for itself."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    here = hardware_for("auto")
    assert (80 * 10**9, int(79.19 * 2**30)) == (here.memory_per_rank(1), here.visible_per_rank(1))
    there = hardware_for("L4-24GB")
    assert (24 * 10**9, 22 * 2**30) == (there.memory_per_rank(4), there.visible_per_rank(4))


def test_a_gpu_without_bf16_is_known_as_one(three_gpus, monkeypatch):
    """By its compute capability here, by the table elsewhere; a T4 in a machine is enough."""
    assert not hardware_for("auto").bf16
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert hardware_for("auto").bf16
    assert not hardware_for("Tesla T4").bf16


def test_the_driver_is_asked_once(three_gpus):
    """A plan is made with every move of a slider; the driver takes milliseconds."""
    asked = len(three_gpus.closed)
    for _ in range(3):
        hardware_for("auto")
    assert asked + 1 == len(three_gpus.closed)


def test_bytes_from_an_old_driver_library_are_text(monkeypatch):
    """Older versions of the library answer in bytes."""
    old = driver((b"NVIDIA L4", 23_034 << 20))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "pynvml", old)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [Gpu("NVIDIA L4", 23_034 << 20)] == visible_gpus()
