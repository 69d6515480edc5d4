"""Jobs that only exist in files: what the notebook shows of a job does not depend on who trains it."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernel_launcher.launcher import client
from kernel_launcher.protocol import control, index
from kernel_launcher.protocol.events import EventWriter
from kernel_launcher.protocol.files import now, write_json
from kernel_launcher.protocol.liveness import LauncherLock
from kernel_launcher.protocol.paths import RunDir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class FakeJob:
    """A job whose launcher is this process: it holds the lock and writes the events."""

    def __init__(self, folder: Path, name: str = "fake") -> None:
        run = RunDir(folder)
        run.create()
        stamp = now()
        self.entry = index.Entry(
            id=f"{name}-20250101-101010-ab12", name=name, root=str(folder), created_at=stamp, fingerprint=name
        )
        write_json(run.spec, {"job": {"id": self.entry.id}, "spec": {"model": {"base": "tiny"}}})
        index.add(self.entry)
        self._lock = LauncherLock(run)
        self._launcher = EventWriter(run.launcher_events, "launcher")
        self._run = run
        self._ranks: dict[int, EventWriter] = {}
        self.status("provisioning")

    def status(self, status: str) -> None:
        self._launcher.write("status", status=status, reason="")

    def fail(self, **failure: Any) -> None:
        self._launcher.write("failure", **failure)
        self.status("failed")

    def report(self, kind: str, rank: int = 0, **fields: Any) -> None:
        """An event of a rank."""
        if rank not in self._ranks:
            self._run.rank(rank).root.mkdir(parents=True)
            self._ranks[rank] = EventWriter(self._run.rank(rank).events, "rank", rank=rank)
        self._ranks[rank].write(kind, **fields)

    def plan(self, *, peak: int, limit: int, method: str = "sft_text") -> None:
        """What was decided, as far as a picture shows it."""
        found = {"total_bytes": peak, "band_bytes": peak // 20, "limit_bytes": limit, "phase": "end of backward"}
        resources = {"gpu_type": "CPU", "gpu_count": 4}
        write_json(self._run.plan, {"method": {"type": method}, "resources": resources, "peak": found})
        knobs = {"data_parallel_size": 4, "zero_stage": 0, "micro_batch_size": 2, "global_batch_size": 32}
        self._launcher.write("plan", line="plan: dp=4 zero_stage=0 mbs=2", resolved_parallelism=knobs, warnings=[])

    def step(self, step: int, total: int = 30, **metrics: float) -> None:
        self.report("step", step=step, total_steps=total, metrics={"loss": 3.4 - 0.1 * step, **metrics})

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Ends when it is asked to, as a launcher does."""

        def answer() -> None:
            deadline = time.monotonic() + 60
            while not control.pending(self.entry.run) and time.monotonic() < deadline:
                time.sleep(0.02)
            self.status("cancelled")

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join()

    def look(self) -> Any:
        """The job's view as anybody sees it."""
        return client.Watcher(self.entry).refresh()
