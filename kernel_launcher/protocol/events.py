"""Events: one JSON object a line, one file a writer.

A line is written with one ``os.write``, so that a reader sees whole lines only; a number that is not finite becomes
``null`` and is named in ``bad``, because JSON has no NaN and a diverged run must not look like a missing value.
"""

from __future__ import annotations

import json
import math
import os
import time
from typing import TYPE_CHECKING, Any

from kernel_launcher.protocol.files import now

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernel_launcher.protocol.paths import RunDir

VERSION = 1
Event = dict[str, Any]


class EventWriter:
    """Appends events to one file; not thread-safe, one writer a file.

    Args:
        path: The file; its folder exists.
        src: ``launcher`` or ``rank``.
        attempt: Which start of the ranks this is.
        rank: The global rank, for ``src="rank"``.
    """

    def __init__(self, path: Path, src: str, *, attempt: int = 0, rank: int | None = None) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._base: Event = {"src": src, "attempt": attempt} | ({} if rank is None else {"rank": rank})
        self._seq = 0
        self._torn = False
        self.dropped = 0

    def write(self, kind: str, **fields: Any) -> None:
        """Append one event. What cannot be written (a full disk) is dropped and counted, never raised."""
        head: Event = {"v": VERSION, "seq": self._seq, "t": now(), "mono": round(time.monotonic(), 4)}
        self._seq += 1
        record = head | self._base | {"kind": kind} | finite(fields)
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        try:
            # A full disk can tear a line; the next one then starts on a line of its own.
            written = os.write(self._file, b"\n" + line if self._torn else line)
            self._torn = written < len(line)
        except OSError:
            self._torn = True
        if self._torn:
            self.dropped += 1

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def finite(fields: Event) -> Event:
    """The fields with every number that is not finite as None, and those names listed under ``bad``."""
    bad: list[str] = []

    def clean(name: str, value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            bad.append(name)
            return None
        if isinstance(value, dict):
            return {key: clean(str(key), item) for key, item in value.items()}
        return value

    cleaned = {name: clean(name, value) for name, value in fields.items()}
    return cleaned | {"bad": bad} if bad else cleaned


class EventReader:
    """Reads what is new in every event file of a run, from where it last stopped.

    A last line without its newline is left for the next call; a line that is not an object is counted in ``broken``
    and skipped.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._offsets: dict[Path, int] = {}
        self.broken = 0

    def read(self) -> list[Event]:
        """The new events of all files, by time."""
        events = [event for path in self._run.event_files() for event in self._read_file(path)]
        events.sort(key=lambda event: str(event.get("t", "")))
        return events

    def _read_file(self, path: Path) -> Iterator[Event]:
        offset = self._offsets.get(path, 0)
        try:
            with path.open("rb") as file:
                file.seek(offset)
                block = file.read()
        except OSError:
            return
        end = block.rfind(b"\n") + 1
        self._offsets[path] = offset + end
        for line in block[:end].splitlines():
            if not line:
                continue
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if isinstance(event, dict) and "kind" in event:
                yield event
            else:
                self.broken += 1
