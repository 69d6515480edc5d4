"""Requests to a running launcher: one file each, acknowledged by an event, gone when done."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernel_launcher.protocol.files import read_json, write_json

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_launcher.protocol.paths import RunDir


@dataclass(frozen=True, slots=True)
class Request:
    """One request: its name (``stop``) and the file that holds it."""

    name: str
    path: Path
    fields: dict[str, Any]


def send(run: RunDir, name: str, **fields: Any) -> None:
    """Leave a request for the launcher.

    Raises:
        OSError: It could not be written.
    """
    write_json(run.control / f"{time.time_ns():020}-{secrets.token_hex(3)}.json", {"request": name, **fields})


def pending(run: RunDir) -> list[Request]:
    """The requests that wait, oldest first."""
    found = []
    for path in sorted(run.control.glob("[!.]*.json")):
        value = read_json(path)
        if isinstance(value, dict) and isinstance(value.get("request"), str):
            found.append(Request(value.pop("request"), path, value))
    return found
