"""One reader a file format. Each yields numbered rows as it reads them: the size of the file does not matter."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from kernel_launcher.data.rows.faults import brief, counted
from kernel_launcher.data.rows.messages import kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_BOM = b"\xef\xbb\xbf"
_REWRITE = "Write it again with a JSON library."
_CHUNK = 1 << 20
_PARQUET_ROWS = 1000
_SPACE = re.compile(r"[ \t\r\n]*")
# A JSON error this near to the end of what was read so far may only be a value that was cut, such as half an escape.
_CUT = 16


class Unreadable(Exception):
    """The file as a whole cannot be used."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Broken:
    """A row that could not be read, and why."""

    reason: str


Row = dict[str, Any] | Broken


def read_json(path: Path) -> Iterator[tuple[int, Row]]:
    """A list of objects, or one object a line: the content tells which, because both come under both suffixes."""
    with _opened(path) as file:
        first_line = file.read(4096).removeprefix(_BOM).lstrip().partition(b"\n")[0].rstrip()
    if first_line == b"{":
        raise Unreadable("it holds one object.", "Write a list of objects, or one object a line.")
    return _json_list(path) if first_line.startswith(b"[") else _json_lines(path)


def json_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, Row]]:
    """One object a line; empty lines are counted and skipped."""
    for number, line in enumerate(lines, 1):
        content = line.removeprefix(_BOM) if number == 1 else line
        if content and not content.isspace():
            yield number, _json_row(content, number)


def read_csv(path: Path) -> Iterator[tuple[int, Row]]:
    """Rows under a header. An empty cell is None: the format has no other way to leave a cell out."""
    # The module's limit of 131,072 characters a cell is process-wide; long documents are normal here.
    csv.field_size_limit(sys.maxsize)
    with _opened(path) as binary, io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
            names = [name for name in header if name]
            if len(set(names)) < len(names):
                raise Unreadable("its first line names a column twice.", "Give each column a name of its own.")
            filled = (cells for cells in reader if any(cells))
            for number, cells in enumerate(filled, 1):
                yield number, _csv_row(header, cells)
        except csv.Error as error:
            reason = f"line {reader.line_num} is not CSV: {error}."
            raise Unreadable(reason, "Put cells that hold commas, quotes or line ends in double quotes.") from error


def read_parquet(path: Path) -> Iterator[tuple[int, Row]]:
    """The rows of a Parquet file, a thousand at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except pa.ArrowException as error:
        raise Unreadable(f"it is no Parquet file, or a broken one: {brief(str(error))}", "Write it again.") from error


def parquet_size(path: Path) -> int:
    """Bytes of all columns once unpacked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
    except pa.ArrowException:  # whoever reads the rows says so
        return path.stat().st_size
    return sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))


def gzip_size(path: Path) -> int:
    """Bytes once unpacked, from the file's last four bytes (modulo 4 GiB)."""
    with path.open("rb") as file:
        file.seek(-min(4, path.stat().st_size), io.SEEK_END)
        return int.from_bytes(file.read(4), "little")


def _opened(path: Path) -> gzip.GzipFile | io.BufferedReader:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")


def _json_lines(path: Path) -> Iterator[tuple[int, Row]]:
    with _opened(path) as file:
        yield from json_lines(file)


def _json_row(line: bytes, number: int) -> Row:
    try:
        text = line.decode().strip()
        row, end = _decode(text)  # half the time of json.loads, which looks for what is not there
        if end < len(text):
            return Broken("it is not JSON: it goes on after its end.")
    except UnicodeDecodeError as error:
        raise Unreadable(f"line {number} is not UTF-8 ({error.reason}).", "Save it as UTF-8.") from error
    except (ValueError, RecursionError) as error:
        place = f" (character {error.pos + 1})" if isinstance(error, json.JSONDecodeError) else ""
        return Broken(f"it is not JSON: {_json_problem(error)}{place}.")
    return row if isinstance(row, dict) else Broken(f"it is {kind(row)}, not an object.")


def _json_list(path: Path) -> Iterator[tuple[int, Row]]:
    with _opened(path) as binary, io.TextIOWrapper(binary, encoding="utf-8-sig") as file:
        window = _JsonWindow(file)
        window.take("[")
        number = 0
        while window.next_character() != "]":
            if number:
                window.take(",")
            number += 1
            if window.next_character() != "{":
                raise Unreadable(f"row {number} is no object.", "Write a list of objects.")
            yield number, window.take_object(number)
        window.take("]")
        if window.next_character():
            raise Unreadable("it goes on after the end of its list.", "Write one list of objects.")


class _JsonWindow:
    """A part of a JSON text that moves over the file: a list of any length in the memory of its largest rows."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._text = ""
        self._at = 0

    def next_character(self) -> str:
        """The next character that is no white space; empty at the end of the file."""
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_on():
                return ""

    def take(self, character: str) -> None:
        """Step over one character that must come next."""
        found = self.next_character()
        if found != character:
            place = f"before '{found}'" if found else "at its end"
            raise Unreadable(f"its list is broken: '{character}' is missing {place}.", _REWRITE)
        self._at += 1

    def take_object(self, number: int) -> dict[str, Any]:
        """Step over the object that begins here, and give it."""
        while True:
            try:
                value, self._at = _decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if not (self._may_be_cut(error) and self._read_on()):
                    reason = f"row {number} is not JSON: {_json_problem(error)}."
                    raise Unreadable(reason, _REWRITE) from error
            else:
                return dict(value)

    def _may_be_cut(self, error: Exception) -> bool:
        if not isinstance(error, json.JSONDecodeError):
            return False
        return error.pos + _CUT >= len(self._text) or error.msg.startswith("Unterminated string")

    def _read_on(self) -> bool:
        """Read at least as much as is kept, so that a huge object is tried a few times only."""
        rest = self._text[self._at :]
        more = self._file.read(max(_CHUNK, len(rest)))
        self._text, self._at = rest + more, 0
        return bool(more)


def _json_problem(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]}"
    return "it is nested too deep" if isinstance(error, RecursionError) else "it holds a number of too many digits"


def _csv_row(header: list[str], cells: list[str]) -> Row:
    if len(cells) != len(header):
        return Broken(f"it has {counted(len(cells), 'cell')} and the header has {len(header)}.")
    return {name: cell or None for name, cell in zip(header, cells, strict=True) if name}
