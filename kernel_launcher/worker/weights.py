"""What safetensors files hold, read from their headers alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LENGTH_BYTES = 8
_LONGEST_HEADER = 100_000_000


class BrokenFile(Exception):
    """A file is not what it should be; the text says how."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor in a file: its number of elements, and the format's name of its dtype (``BF16``)."""

    elements: int
    dtype: str


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder."""
    return sorted(folder.glob("*.safetensors"))


def stored_tensors(path: Path) -> dict[str, Stored]:
    """The tensors of one file by name.

    Raises:
        BrokenFile: The header cannot be read, or the file is shorter or longer than it says.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if length > min(_LONGEST_HEADER, size):
                raise BrokenFile(f"{path}: its header is broken")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        tensors = {name: Stored(prod(entry["shape"]), entry["dtype"]) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenFile(f"{path}: its header is broken ({type(error).__name__})") from None
    expected = _LENGTH_BYTES + length + end
    if size != expected:
        raise BrokenFile(f"{path}: {expected:,} bytes expected, {size:,} found")
    return tensors
