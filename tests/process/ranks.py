"""Ranks started by hand, as the agent starts them, below a process that only holds the launcher's lock."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher.launcher.environment import job_environment
from kernel_launcher.planner import Plan
from kernel_launcher.preflight import prepare
from kernel_launcher.protocol.failure import RankRecord
from kernel_launcher.protocol.liveness import is_alive
from kernel_launcher.protocol.paths import RunDir
from kernel_launcher.spec import read_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_ROOT = Path(__file__).parents[2]
_HOLD = """
import sys, time
from pathlib import Path
from kernel_launcher.protocol.liveness import LauncherLock
from kernel_launcher.protocol.paths import RunDir
lock = LauncherLock(RunDir(Path(sys.argv[1])))
time.sleep(600)
"""


@dataclass(frozen=True)
class Ranks:
    """The processes of one run: the stand-in for the launcher, and the ranks in order."""

    run: RunDir
    launcher: subprocess.Popen[bytes]
    processes: list[subprocess.Popen[bytes]]

    def wait(self, seconds: float = 120) -> list[int]:
        """The exit codes; fails with the logs if a rank does not end in time."""
        deadline = time.monotonic() + seconds
        try:
            return [process.wait(max(0.1, deadline - time.monotonic())) for process in self.processes]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"a rank does not end\n{logs(self.run)}") from None

    def wait_until(self, holds: Callable[[], object], seconds: float = 120) -> None:
        """Return once something holds; fails with the logs if it does not in time."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, logs(self.run)
            time.sleep(0.1)


def make_run(folder: Path, model: str | Path, data: Path, **settings: Any) -> RunDir:
    """A run folder as the launcher finds it; two rows a rank and step unless ``settings`` say otherwise."""
    length = "max_length" if settings.get("method") == "dpo" else "max_seq_length"
    settings = {"dataset_id": str(data), "gpu_type": "CPU", "gpu_count": 1, length: 64} | settings
    prepared = prepare(read_spec(str(model), settings=settings, base_dir=folder), base_dir=folder)
    run = RunDir(folder / "run")
    run.create()
    prepared.write(run, job={"id": "test", "name": "test"})
    return run


@contextmanager
def started(run: RunDir, environment: Mapping[str, str] | None = None) -> Iterator[Ranks]:
    """The ranks of a run; whatever is left of them is killed on the way out."""
    world_size = _world_size(run)
    launcher = subprocess.Popen([sys.executable, "-c", _HOLD, str(run.root)])
    ranks = Ranks(run, launcher, [])
    try:
        ranks.wait_until(lambda: is_alive(run))
        port = free_port()
        for number in range(world_size):
            ranks.processes.append(_start(run, number, world_size, port, environment or {}))
        yield ranks
    finally:
        for process in [*ranks.processes, launcher]:
            process.kill()
            process.wait()


def completed(run: RunDir, environment: Mapping[str, str] | None = None) -> RunDir:
    """The run after all its ranks have ended well."""
    with started(run, environment) as ranks:
        codes = ranks.wait()
    assert [0] * len(codes) == codes, logs(run)
    return run


def in_turn(runs: Sequence[RunDir], seconds: float = 840, module: str = "tests.process.cells") -> None:
    """Do several jobs of as many ranks, one after the other in the same processes; fails if one fails."""
    world_size = _world_size(runs[0])
    port = free_port(len(runs))
    logs_of = [runs[0].root.parent / f"rank_{number}.log" for number in range(world_size)]
    processes = []
    for number, path in enumerate(logs_of):
        command = [sys.executable, "-u", "-m", module, *(str(run.root) for run in runs)]
        env = _environment(runs[0], number, world_size, port)
        with path.open("wb") as log:
            processes.append(subprocess.Popen(command, env=env, cwd=_ROOT, stdout=log, stderr=log))
    try:
        codes = _codes(processes, seconds)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [0] * world_size == codes, "\n".join(path.read_text()[-3000:] for path in logs_of)


def events(run: RunDir, rank: int, kind: str | None = None) -> list[dict[str, Any]]:
    """What a rank has reported, or what it has of one kind."""
    path = run.rank(rank).events
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return [event for event in found if kind is None or event["kind"] == kind]


def record(run: RunDir, rank: int) -> RankRecord | None:
    """What a rank left about its failure."""
    return RankRecord.read(run.rank(rank).failure)


def logs(run: RunDir) -> str:
    """The end of everything that the ranks printed."""
    files = [path for _, folder in run.ranks() for path in (folder.stdout, folder.stderr)]
    return "\n".join(f"== {path.parent.name}/{path.name}\n{path.read_text()[-3000:]}" for path in files)


def _world_size(run: RunDir) -> int:
    return int(json.loads(run.plan.read_text())["resources"]["gpu_count"])


def _start(
    run: RunDir, number: int, world_size: int, port: int, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    folder = run.rank(number)
    folder.root.mkdir(parents=True)
    env = _environment(run, number, world_size, port) | dict(environment)
    with folder.stdout.open("wb") as stdout, folder.stderr.open("wb") as stderr:
        command = [sys.executable, "-u", "-P", "-m", "kernel_launcher.worker", str(run.root)]
        return subprocess.Popen(command, env=env, cwd=run.root, stdout=stdout, stderr=stderr)


def _environment(run: RunDir, number: int, world_size: int, port: int) -> dict[str, str]:
    plan = Plan.from_json(json.loads(run.plan.read_text()))
    return job_environment(plan, len(os.sched_getaffinity(0))) | {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def _codes(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> list[int]:
    """Exit codes; once one has failed, the others, which would wait for it, are killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not any(process.poll() for process in processes):
        if all(process.returncode == 0 for process in processes):
            break
        time.sleep(0.1)
    for process in processes:
        if process.poll() is None:
            process.kill()
    return [process.wait() for process in processes]


def free_port(count: int = 1) -> int:
    """The first of so many ports that nobody uses now, and that no outgoing connection will be given."""
    while True:
        first = random.randrange(10_000, 30_000)
        with suppress(OSError), ExitStack() as held:
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("", port)))
            return first
