"""Small files that are either whole or absent, and the clock that stamps them."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

MOST_CHARACTERS = 2_000
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def now() -> str:
    """The time as ISO 8601 UTC, in milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_between(start: str, end: str) -> float:
    """Seconds from one ISO 8601 time to another."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def write_json(path: Path, value: Any, *, durable: bool = False) -> None:
    """Write one JSON value by temporary sibling and rename, so that a reader never sees half of it.

    Args:
        path: Where it goes; its folder exists.
        value: Anything that JSON holds.
        durable: Whole even after a power cut (fsync before the rename).

    Raises:
        OSError: The file could not be written; nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(3).hex()}")
    try:
        # A file name that is not UTF-8 has an escape in JSON, but no bytes in UTF-8.
        with temporary.open("w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(value, file, ensure_ascii=False, indent=1)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any | None:
    """The JSON value in a file, or None if there is no such file or it is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def readable(line: str, most: int = MOST_CHARACTERS) -> str:
    """A line of somebody's text as it can be shown anywhere: no colours, no control characters, at most so long."""
    text = _CONTROL.sub("", _ANSI.sub("", line))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a text file, without reading all of a large one; empty if there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            size = file.tell()
            block = 64 * 1024
            while True:
                start = max(0, size - block)
                file.seek(start)
                found = lines_of(file.read(size - start))
                if start == 0 or len(found) > lines:
                    return found[-lines:] if lines > 0 else []
                block *= 4
    except OSError:
        return []


def lines_of(block: bytes) -> list[str]:
    """Text as lines, each as a terminal is left with it: of a progress bar, what it came to."""
    lines = block.decode("utf-8", "replace").removesuffix("\n").split("\n") if block else []
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]
