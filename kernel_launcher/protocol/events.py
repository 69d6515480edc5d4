"""Events: one JSON object a line, one file a writer.

A line is written with one ``os.write``, so that a reader sees whole lines only; a number that is not finite becomes
``null`` and is named in ``bad``, because JSON has no NaN and a diverged run must not look like a missing value.
"""

from __future__ import annotations

import json
import math
import os
import time
from heapq import merge
from typing import TYPE_CHECKING, Any, BinaryIO

from kernel_launcher.protocol.files import now

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernel_launcher.protocol.paths import RunDir

VERSION = 1
_BLOCK_BYTES = 1 << 16
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
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=str)
        # Half of a surrogate pair (a file name that is not UTF-8) has an escape in JSON, but no bytes in UTF-8.
        line = text.encode("utf-8", "backslashreplace") + b"\n"
        if self._torn:
            line = b"\n" + line  # a full disk can tear a line; the next one starts on a line of its own
        try:
            self._torn = os.write(self._file, line) < len(line)
        except OSError:
            self._torn = True
        self.dropped += self._torn

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def finite(fields: Event) -> Event:
    """The fields with every number that is not finite as None, and those names listed under ``bad``."""
    bad: dict[str, None] = {}

    def clean(name: str, value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            bad[name] = None
            return None
        if isinstance(value, dict):
            return {key: clean(str(key), item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [clean(name, item) for item in value]
        return value

    cleaned = {name: clean(name, value) for name, value in fields.items()}
    return cleaned | {"bad": list(bad)} if bad else cleaned


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
        """The new events of all files, by time; those of one writer stay in its order, whatever the clock did."""
        return list(self.stream())

    def stream(self) -> Iterator[Event]:
        """The same, to be taken to the end: a few at a time are a third faster than all that a long run has."""
        return merge(*map(self._of_file, self._run.event_files()), key=lambda event: str(event.get("t", "")))

    def _of_file(self, path: Path) -> Iterator[Event]:
        try:
            with path.open("rb") as file:
                while lines := self._next_lines(file, path):
                    yield from self._events(lines)
        except OSError:
            return

    def _next_lines(self, file: BinaryIO, path: Path) -> list[bytes]:
        start = self._offsets.get(path, 0)
        file.seek(start)  # what was half a line a moment ago may be a whole one now
        lines = [line for line in file.readlines(_BLOCK_BYTES) if line.endswith(b"\n")]
        self._offsets[path] = start + sum(map(len, lines))
        return lines

    def _events(self, lines: list[bytes]) -> list[Event]:
        try:
            # All at once is twice as fast as line by line, which is for those with a broken or an empty line.
            records = json.loads(b"[" + b",".join(lines) + b"]")
        except ValueError:
            records = [_parsed(line) for line in lines if line.strip()]
        events = [record for record in records if isinstance(record, dict) and isinstance(record.get("kind"), str)]
        self.broken += len(records) - len(events)
        return events


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
