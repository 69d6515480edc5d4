"""Where rows come from: a file of ours to read, or a data set on the hub."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_launcher.data.rows import readers
from kernel_launcher.data.rows.faults import no_rows, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kernel_launcher.data.rows.readers import Row

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".jsonl.gz", ".json.gz", ".csv.gz")
_HUB_ID = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}(/[A-Za-z0-9_][\w.-]{0,95})?", re.ASCII)
_PATH_STARTS = ("/", ".", "~")
_LISTED = 5
_READERS = {
    ".json": readers.read_json,
    ".jsonl": readers.read_json,
    ".csv": readers.read_csv,
    ".parquet": readers.read_parquet,
}


@dataclass(frozen=True, slots=True)
class HubId:
    """A data set on the hub. Its rows are read in the job, by whoever has the ``datasets`` library."""

    id: str

    def __str__(self) -> str:
        return self.id


def resolve(given: str, base_dir: Path) -> Path | HubId:
    """The file or the hub id that ``[dataset] id`` means.

    An existing path wins. A folder stands for the one data file in it. What looks like a path is never a hub id.

    Args:
        given: The value as written.
        base_dir: What relative paths are relative to.

    Returns:
        An absolute path (links are kept: the name they point to may have lost its suffix), or the id.

    Raises:
        InvalidRequest: There is no such file, or it is of a kind that is not read.
    """
    path = _existing(given, base_dir)
    if path is None:
        return _hub_id(given, base_dir)
    if path.is_dir():
        return _only_file(given, path)
    if not path.is_file():
        raise refused("it is not a regular file.", "Write the rows to a file first.", given)
    if suffix_of(path) is None:
        raise refused("files of this kind are not read.", f"Use one of {', '.join(SUFFIXES)}.", given)
    return path


def suffix_of(path: Path) -> str | None:
    """The suffix that says how a file is read; None for a kind that is not."""
    name = path.name.lower()
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), None)


def read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """The rows of a file with their numbers, read as they are needed.

    Numbers start at 1: the line in a file of JSON lines, the row elsewhere. A line that is no JSON object comes as
    ``Broken``, and the next one follows.

    Raises:
        InvalidRequest: The file as a whole cannot be read, or holds no rows. Raised where it is met.
    """
    number = 0
    try:
        for number, row in _reader(path)(path):
            yield number, row
    except UnicodeDecodeError as error:
        raise refused(f"it is not UTF-8 ({error.reason}).", "Save it as UTF-8.", path) from error
    except readers.Unreadable as error:
        raise refused(error.reason, error.fix, path) from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise refused(f"it cannot be read: {reason}.", "Look at the file.", path) from error
    if number == 0:
        raise no_rows(str(path))


def data_size(path: Path) -> int:
    """Bytes of data in a file, once unpacked; for gzip what its trailer says (modulo 4 GiB)."""
    if path.name.lower().endswith(".parquet"):
        return readers.parquet_size(path)
    if path.name.lower().endswith(".gz"):
        return readers.gzip_size(path)
    return path.stat().st_size


def _reader(path: Path) -> Callable[[Path], Iterator[tuple[int, Row]]]:
    return _READERS[(suffix_of(path) or "").removesuffix(".gz")]


def _existing(given: str, base_dir: Path) -> Path | None:
    try:
        path = (base_dir / Path(given).expanduser()).absolute()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long a name, no such user, a NUL: no path of anything
        return None


def _hub_id(given: str, base_dir: Path) -> HubId:
    path = base_dir / given
    looks_like_path = given.startswith(_PATH_STARTS) or suffix_of(path) is not None
    if looks_like_path or not _HUB_ID.fullmatch(given):
        raise refused("there is no such file.", _nearest(path), given, "invalid_request")
    return HubId(given)


def _only_file(given: str, folder: Path) -> Path:
    entries = sorted(folder.iterdir())
    files = [path for path in entries if path.is_file() and suffix_of(path)]
    if any(path.suffix == ".arrow" for path in entries):
        fix = "Give the Dataset itself (load_from_disk), or write it with to_parquet."
        raise refused("it is a Dataset that was saved to a folder.", fix, given)
    if len(files) == 1:
        return files[0]
    if not files:
        raise refused("it is a folder without a data file.", f"Name a file: {', '.join(SUFFIXES)}.", given)
    fix = f"Name one of them: {_listed(files)}."
    raise refused(f"it is a folder with {len(files)} data files.", fix, given)


def _nearest(path: Path) -> str:
    """What to do about a file that is not there."""
    try:
        entries = sorted(path.parent.expanduser().iterdir())
    except (OSError, RuntimeError, ValueError):
        return f"There is no folder {path.parent} either."
    names = {entry.name.lower(): entry.name for entry in entries}
    close = get_close_matches(path.name.lower(), names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean '{names[close[0]]}' in that folder?"
    files = [entry for entry in entries if suffix_of(entry)]
    return f"That folder has {_listed(files)}." if files else "That folder has no data files."


def _listed(files: Sequence[Path]) -> str:
    names = ", ".join(path.name for path in files[:_LISTED])
    return names if len(files) <= _LISTED else f"{names} and {len(files) - _LISTED} more"
