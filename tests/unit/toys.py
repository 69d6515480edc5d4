"""Small things that tests of the engine share: a model, a plan, a run folder with events, a stand-in launcher."""

from __future__ import annotations

import json
import sys
import zlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import psutil

from kernel_launcher.errors import InvalidRequest
from kernel_launcher.planner import Hardware, ModelFacts, make_plan
from kernel_launcher.preflight.dataset import DataRef
from kernel_launcher.preflight.prepare import Prepared
from kernel_launcher.protocol import index
from kernel_launcher.protocol.events import EventWriter
from kernel_launcher.protocol.files import now, read_json, write_json
from kernel_launcher.protocol.liveness import find_process
from kernel_launcher.protocol.paths import RunDir
from kernel_launcher.spec import read_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CPU = Hardware(gpu_type="CPU", cores=2, host_memory_bytes=8_000_000_000)
ROWS = [{"prompt": "a", "completion": "b"}] * 3


def refusal_of(read: Callable[[], object]) -> InvalidRequest | None:
    """What was refused; None if nothing was. Any other exception goes through."""
    try:
        read()
    except InvalidRequest as error:
        return error
    return None


def model_folder(path: Path) -> Path:
    """A model that passes every check that reads no weights: one tensor of 16 numbers."""
    path.mkdir(parents=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}).encode()
    (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    (path / "config.json").write_text('{"max_position_embeddings": 512}')
    (path / "tokenizer.json").write_text("{}")
    return path


def prepared(digest: str = "rows", **settings: Any) -> Prepared:
    """A job that is ready to start, without any check."""
    spec = read_spec({"base_model": "owner/model", "lora_rank": 4, **settings})
    plan = make_plan(spec, CPU, ModelFacts())
    return Prepared(spec=spec, plan=plan, data=DataRef(kind="file", path="/rows.jsonl", digest=digest))


def run_folder(root: Path, name: str = "toy", *, created_at: str | None = None, **settings: Any) -> index.Entry:
    """A run folder as ``start`` leaves it, and its place in the index; no launcher runs."""
    ready = prepared(**settings)
    run = RunDir(root.absolute())
    run.create()
    created = created_at or now()
    stamp = created[:19].replace("-", "").replace(":", "").replace("T", "-")
    entry = index.Entry(
        id=f"{name}-{stamp}-{abs(hash(str(root))) % 16**4:04x}",
        name=name,
        root=str(run.root),
        created_at=created,
        fingerprint=ready.fingerprint,
    )
    ready.write(run, job=asdict(entry))
    index.add(entry)
    return entry


def tell(entry: index.Entry, *events: tuple[str, dict[str, Any]], rank: int | None = None) -> None:
    """Write events of the launcher, or of a rank."""
    folder = entry.run.rank(rank or 0)
    if rank is not None:
        folder.root.mkdir(parents=True, exist_ok=True)
    path = entry.run.launcher_events if rank is None else folder.events
    writer = EventWriter(path, "launcher" if rank is None else "rank", rank=rank)
    for kind, fields in events:
        writer.write(kind, **fields)
    writer.close()


def status(value: str, reason: str = "") -> tuple[str, dict[str, Any]]:
    """One status event."""
    return "status", {"status": value, "reason": reason}


def step(number: int, total: int, **metrics: float) -> tuple[str, dict[str, Any]]:
    """One step event."""
    return "step", {"step": number, "total_steps": total, "metrics": metrics}


def complete(entry: index.Entry) -> None:
    """Let a job have trained 2 steps and completed."""
    tell(entry, step(1, 2, loss=3.0), step(2, 2, loss=2.0), rank=0)
    tell(entry, *map(status, ("provisioning", "configuring", "running", "completed")))
    (entry.run.final).mkdir()
    write_json(
        entry.run.status,
        {
            "status": "completed",
            "reason": "the model is complete",
            "step": 2,
            "total_steps": 2,
            "loss": 2.0,
            "started_at": now(),
            "completed_at": now(),
            "error": None,
        },
    )


_LAUNCHER = """#!{python} -P
import sys, time
from pathlib import Path
from kernel_launcher.protocol import control
from kernel_launcher.protocol.events import EventWriter
from kernel_launcher.protocol.liveness import LauncherLock
from kernel_launcher.protocol.paths import RunDir
run = RunDir(Path(sys.argv[-1]))
lock = LauncherLock(run)
events = EventWriter(run.launcher_events, "launcher")
events.write("status", status="provisioning", reason="the launcher has started")
{then}
"""
ANSWERS = """
while not control.pending(run):
    time.sleep(0.02)
events.write("control", request="stop", state="seen")
events.write("status", status="cancelled", reason="stopped on request")
"""
DEAF = """
while True:
    time.sleep(1)
"""


def interpreter(folder: Path, then: str) -> Path:
    """An "interpreter" that runs a launcher of ours in the place of the real one: lock, first event, and ``then``."""
    path = folder / f"python-{zlib.crc32(then.encode()):08x}"
    if not path.exists():
        path.write_text(_LAUNCHER.format(python=sys.executable, then=then))
        path.chmod(0o755)
    return path


def launcher_of(entry: index.Entry) -> psutil.Process:
    """The launcher that runs a job."""
    process = find_process(read_json(entry.run.lock))
    assert process is not None
    return process


def dead(process: psutil.Process) -> bool:
    """Whether it has ended, waited for or not."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
