"""``python ranks.py GROUP DEVICE FILE DEADLINE``: a rank of a group, row after row; rank 0 writes a line for each."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # not this file's own folder: its modules are a package

import torch
from gpu_check import plan, table
from gpu_check.rows import ROWS, Row
from torch import distributed as dist

if TYPE_CHECKING:
    from collections.abc import Sequence

LENGTH = {"cuda": 1024, "cpu": 64}
_LEAST_SECONDS = 5.0


def main(arguments: Sequence[str]) -> None:
    """Run the rows of a group."""
    group, kind, file, deadline = arguments
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    plan.open_planner()
    device = torch.device(kind, rank if group == "together" else 0) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    if group == "eight":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    elif group == "together":
        dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    for row in (row for row in ROWS if row.group == group):
        found = _result(row, device, ranks, float(deadline))
        if rank == 0:
            with Path(file).open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(found) + "\n")
    if dist.is_initialized():
        dist.destroy_process_group()


def _result(row: Row, device: torch.device, ranks: int, deadline: float) -> dict[str, Any]:
    if why := _hindrance(row, device, deadline):
        return table.entry(row, f"not run: {why}")
    from gpu_check.measure import CheckError, loss_kind, run

    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
    length = LENGTH[device.type]
    try:
        config = plan.config_of(row, ranks=ranks, loss=loss_kind(), memory=memory)
        planned = plan.planned_peak(row, config, ranks=ranks, loss=loss_kind(), length=length, device=device.type)
        found = run(row, config, length=length, device=device)
    except CheckError as error:
        return table.entry(row, f"failed: {error}")
    except Exception as error:  # whatever one row runs into, the others are still worth running
        traceback.print_exc()
        return table.entry(
            row, f"failed: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        )
    size = {"layers": config["num_hidden_layers"], "hidden": config["hidden_size"], "length": length}
    return table.entry(row, "ran", planned_bytes=planned, ranks=ranks, loss=loss_kind(), **size, **found)


def _hindrance(row: Row, device: torch.device, deadline: float) -> str:
    missing = [package for package in row.needs if find_spec(package) is None]
    if missing:
        return f"{' and '.join(missing)} is not installed"
    if row.gpu and device.type != "cuda":
        return "no GPU"
    if _agreed_time() > deadline - _LEAST_SECONDS:
        return "the time is over"
    return ""


def _agreed_time() -> float:
    """The clock, of rank 0 where ranks have to stop together."""
    now = [time.time()]
    if dist.is_initialized() and dist.get_backend() != "fake":
        dist.broadcast_object_list(now)
    return now[0]


if __name__ == "__main__":
    main(sys.argv[1:])
