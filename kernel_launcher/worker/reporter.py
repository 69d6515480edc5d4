"""Events of one rank. The training thread puts them into a bounded queue; one thread writes them.

Nothing here makes the training thread wait: when the queue is full, an event is dropped and counted.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kernel_launcher.protocol.liveness import identity
from kernel_launcher.worker.memory import Memory, host_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernel_launcher.protocol.events import EventWriter

HEARTBEAT_SECONDS = 5.0
_QUEUE_EVENTS = 10_000
_END = "end"
_LINE = "line"


class Reporter:
    """Writes a rank's events; the first two (who this is, phase ``import``) before it returns.

    Args:
        writer: Where they go; used by this object alone.

    Attributes:
        phase: What the rank is doing.
        step: The last optimizer step that is complete.
        memory: Asked at each heartbeat.
    """

    def __init__(self, writer: EventWriter, *, queue_events: int = _QUEUE_EVENTS) -> None:
        self.phase = "import"
        self.step = 0
        self.memory: Callable[[], Memory] = host_memory
        self._writer = writer
        self._queue: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue(queue_events)
        self._dropped = 0
        self._held = Memory(0, 0)
        writer.write("process", **identity())
        writer.write("phase", phase=self.phase)
        self._thread = threading.Thread(target=self._write_all, name="reporter", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Events that found the queue full or the disk full."""
        return self._dropped + self._writer.dropped

    def enter(self, phase: str) -> None:
        """Say what the rank does from now on."""
        self.phase = phase
        self.put("phase", phase=phase)

    def report_step(self, step: int, total_steps: int, metrics: Mapping[str, float]) -> None:
        """Report an optimizer step that is complete."""
        self.step = step
        self.put("step", step=step, total_steps=total_steps, metrics=dict(metrics))

    def warn(self, message: str) -> None:
        """Report something that a person should know."""
        self.put("warning", message=message)

    def say(self, text: str) -> None:
        """Write a line to the rank's log."""
        self.put(_LINE, text=text)

    def put(self, kind: str, **fields: Any) -> None:
        """Report anything; returns at once."""
        try:
            self._queue.put_nowait((kind, fields))
        except queue.Full:
            self._dropped += 1

    def close(self, timeout: float = 5.0) -> None:
        """Write what is left and a last heartbeat, for at most ``timeout`` seconds."""
        try:
            self._queue.put((_END, {}), timeout=timeout)
        except queue.Full:
            return
        self._thread.join(timeout)

    def _write_all(self) -> None:
        beat_at = time.monotonic() + HEARTBEAT_SECONDS
        while True:
            try:
                kind, fields = self._queue.get(timeout=max(0.0, beat_at - time.monotonic()))
            except queue.Empty:
                self._beat()
                beat_at = time.monotonic() + HEARTBEAT_SECONDS
                continue
            if kind == _LINE:
                self._write_line(fields["text"])
            elif kind == _END:
                self._beat()
                return
            else:
                self._writer.write(kind, **fields)

    def _write_line(self, text: str) -> None:
        try:
            sys.stdout.write(f"{text}\n")
        except OSError:
            self._dropped += 1

    def _beat(self) -> None:
        with suppress(
            RuntimeError
        ):  # a GPU in an error state answers nothing; the training thread is about to say so
            self._held = self.memory()
        lost = {"dropped": self.dropped} if self.dropped else {}
        self._writer.write(
            "heartbeat",
            step=self.step,
            phase=self.phase,
            memory_bytes=self._held.now,
            peak_memory_bytes=self._held.peak,
            **lost,
        )
