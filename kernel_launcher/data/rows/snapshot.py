"""Rows from the notebook, written down as JSON lines: a job outlives the variable that its data came from.

Keys are sorted and nulls are kept, so that equal rows give equal bytes, and one hash, whether they came as a list, a
DataFrame, a Dataset or a Table. (The last three give every row every column; a list of dicts need not.)
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import weakref
from datetime import date, time
from math import isinf, isnan
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any

from kernel_launcher.data.rows.faults import no_rows, refused
from kernel_launcher.data.rows.messages import kind, quoted
from kernel_launcher.data.rows.readers import json_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from kernel_launcher.data.rows.readers import Row

_IN_MEMORY = 64 << 20
_HASHED_WHOLE_BYTES = 500_000_000
_ROWS_AT_A_TIME = 1000
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode


class Snapshot:
    """Rows as JSON lines: in memory up to 64 MiB, beyond that in a temporary file without a name.

    Attributes:
        count: How many rows there are.
        size: Bytes of all lines.
        sha256: The digest of the lines; ``file_digest`` of the written file is the same.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        digest = hashlib.sha256()
        self._file: IO[bytes] = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed with the snapshot
        weakref.finalize(self, self._file.close)
        self.count = 0
        self.size = 0
        for line in lines:
            digest.update(line)
            self.size += self._file.write(line)
            self.count += 1
        self.sha256 = digest.hexdigest()

    def rows(self) -> Iterator[tuple[int, Row]]:
        """The numbered rows as a reader of the file would get them; one reader at a time."""
        self._file.seek(0)
        yield from json_lines(self._file)

    def write_to(self, path: Path) -> None:
        """Write the rows to a file, whole or not at all. Its folder exists."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self._file.seek(0)
            with temporary.open("wb") as file:
                shutil.copyfileobj(self._file, file)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def take_snapshot(data: object) -> Snapshot:
    """The rows of a list of dicts, a pandas DataFrame, a ``datasets.Dataset`` or a pyarrow Table.

    NumPy values become plain ones, dates and times ISO 8601 text, NaN and the like null.

    Raises:
        InvalidRequest: It is something else or empty, or holds a value that JSON cannot.
    """
    snapshot = Snapshot(_line(number, row) for number, row in enumerate(_rows_of(data), 1))
    if snapshot.count == 0:
        raise no_rows("")
    return snapshot


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hex; about a second for each gigabyte or two."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_digest(path: Path) -> str:
    """What tells one state of a user's file from another, in hex.

    The digest of its bytes; of a file beyond 500 MB, which takes too long for a cell that answers in two seconds, of
    its path, size and time of change.
    """
    found = path.stat()
    if found.st_size <= _HASHED_WHOLE_BYTES:
        return file_digest(path)
    return hashlib.sha256(f"{path}:{found.st_size}:{found.st_mtime_ns}".encode()).hexdigest()


def _rows_of(data: Any) -> Iterator[Any]:
    """Rows by what an object can do: the libraries themselves are never imported for it."""
    if isinstance(data, (list, tuple)):
        return iter(data)
    for method, rows in _SHAPES.items():
        if hasattr(data, method):
            return rows(data)
    raise refused(f"it is {kind(data)}.", "Give a list of dicts, a DataFrame, a Dataset, a Table, or a path.")


def _frame_rows(frame: Any) -> Iterator[Any]:
    if not frame.columns.is_unique:
        raise refused("two of its columns have the same name.", "Rename one of them.")
    for start in range(0, len(frame), _ROWS_AT_A_TIME):
        yield from frame.iloc[start : start + _ROWS_AT_A_TIME].to_dict("records")


def _dataset_rows(dataset: Any) -> Iterator[Any]:
    if isinstance(dataset, dict):
        raise refused("it is a DatasetDict, with a data set for each split.", f"Give one: {', '.join(dataset)}.")
    if not hasattr(dataset, "__len__"):
        raise refused("it is a stream without an end that is known.", "Give a Dataset, or its id on the hub.")
    for batch in dataset.with_format(None).iter(batch_size=_ROWS_AT_A_TIME):
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))


def _table_rows(table: Any) -> Iterator[Any]:
    for batch in table.to_batches(max_chunksize=_ROWS_AT_A_TIME):
        yield from batch.to_pylist()


_SHAPES: dict[str, Callable[[Any], Iterator[Any]]] = {
    "iloc": _frame_rows,
    "with_format": _dataset_rows,
    "to_batches": _table_rows,
}


def _line(number: int, row: Any) -> bytes:
    if not isinstance(row, dict):
        raise refused(f"row {number} is {kind(row)}, not a dict.", "Give a list of dicts.")
    if not all(isinstance(name, str) for name in row):
        raise refused(f"row {number} has a column whose name is not text.", "Name the columns with text.")
    try:
        return f"{_encode(row)}\n".encode()
    except (TypeError, ValueError, RecursionError):  # something in it is not JSON yet: NaN, a NumPy value, a date
        plain = {name: _plain_column(number, name, value) for name, value in row.items()}
        return f"{_encode(plain)}\n".encode()


def _plain_column(number: int, name: str, value: Any) -> Any:
    try:
        return _plain(value)
    except _NotJson as error:
        reason = f"row {number}, column {quoted(name)}: {error}"
    except RecursionError:
        reason = f"row {number}, column {quoted(name)}: it is nested too deep."
    raise refused(reason, "Turn it into text, numbers, lists or dicts.")


class _NotJson(Exception):
    """A value that JSON cannot hold, and why."""


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool) or type(value).__name__ in ("NAType", "NaTType"):
        return value if isinstance(value, bool) else None
    if isinstance(value, str):
        return _plain_text(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _plain_float(value)
    if isinstance(value, dict):
        return {_plain_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (date, time)):
        return value.isoformat()
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return _plain(value.astype(str).tolist() if getattr(value.dtype, "kind", "") == "M" else value.tolist())
    raise _NotJson(f"JSON cannot hold a {type(value).__name__}.")


def _plain_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _NotJson("it holds half of a surrogate pair.") from error
    return str.__str__(value)


def _plain_float(value: float) -> float | None:
    if isinf(value):
        raise _NotJson("JSON cannot hold an infinite number.")
    return None if isnan(value) else float(value)


def _plain_key(key: Any) -> str:
    if not isinstance(key, str):
        raise _NotJson("it has a key that is not text.")
    return _plain_text(key)
