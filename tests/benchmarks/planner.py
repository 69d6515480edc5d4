"""Milliseconds of a plan, of a thousand alternatives, and of the planner's import."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import veri_jupyter
from kernel_launcher.planner.outlook import Outlook, workload_of
from tests.benchmarks.figures import line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernel_launcher.planner import Plan

PLANS = 1000
IMPORT = "import sys, time; t = time.perf_counter(); import kernel_launcher.planner; print(time.perf_counter() - t)"


def run(_: Path, pairs: int) -> Iterator[str]:
    """Plan with a length that nobody planned before, as a slider does; then compare, then import."""
    times = sorted(1000 * _seconds(length) for length in range(512, 512 + PLANS))
    yield line("a plan, median", [times[PLANS // 2]], "ms", "<= 1")
    yield line("a plan, 99th percentile", [times[PLANS * 99 // 100]], "ms", "<= 3")
    made = _plan(1024)
    rows = [_alternatives(made, length) for length in range(2048, 2048 + pairs)]
    yield line("1,000 alternatives", rows, "s", "<= 0.3")
    command = [sys.executable, "-c", IMPORT]
    subprocess.run(command, check=True, capture_output=True)
    imports = [float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(pairs)]
    yield line("importing the planner", imports, "s", "<= 0.3")


def _plan(length: int) -> Plan:
    return veri_jupyter.plan("Qwen/Qwen3-4B", gpu_type="L4-24GB", gpus=4, max_seq_length=length)


def _seconds(length: int) -> float:
    start = time.perf_counter()
    _plan(length)
    return time.perf_counter() - start


def _alternatives(made: Plan, length: int) -> float:
    """Seconds for a thousand of them, none of which was asked for before."""
    done, start = 0, time.perf_counter()
    while done < 1000:
        length += 1000
        method = made.method.model_copy(update={"max_seq_length": length, "gradient_accumulation_steps": 64})
        workload = workload_of(method, made.world_size, on_cpu=False, four_bit=False)
        outlook = Outlook(workload, made.outlook.shape, made.outlook.limit)
        done += len(outlook.alternatives())
    return (time.perf_counter() - start) * 1000 / done
