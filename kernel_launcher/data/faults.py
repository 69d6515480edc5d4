"""What can be wrong with a row, and how the rows that cannot be used are told."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.secrets import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

CODE = "dataset_format_incompatible"
SHOWN_ROWS = 20
_SHOWN_COLUMNS = 12
_NAME_WIDTH = 40


class DataRefusal(Exception):
    """This row cannot be used; the text says why. Whoever knows the row's number turns it into a ``RowFault``."""


@dataclass(frozen=True, slots=True)
class RowFault:
    """One row that cannot be used.

    Attributes:
        row: Its number, from 1; in a file of lines, the line.
        reason: What is wrong with it.
        found: The columns that it has.
        needed: What the method needs.
    """

    row: int
    reason: str
    found: tuple[str, ...]
    needed: str

    def __str__(self) -> str:
        columns = f" Columns: {', '.join(self.found)}." if self.found else ""
        return f"row {self.row}: {self.reason}{columns}"


class RowFaults:
    """Counts the rows that cannot be used and keeps the first few."""

    def __init__(self, needed: str) -> None:
        self.needed = needed
        self.count = 0
        self.first: list[RowFault] = []

    def add(self, row: int, reason: object, columns: Mapping[str, object] | None = None) -> None:
        """Note one row; ``columns`` is the row itself where it could be read."""
        self.count += 1
        if len(self.first) < SHOWN_ROWS:
            self.first.append(RowFault(row, str(reason), column_names(columns or {}), self.needed))


def column_names(row: Mapping[str, object]) -> tuple[str, ...]:
    """The names of a row's columns, short enough to print."""
    names = [brief(str(name)) for name in list(row)[:_SHOWN_COLUMNS]]
    more = len(row) - len(names)
    return (*names, f"and {more} more") if more > 0 else tuple(names)


def brief(text: str) -> str:
    """A piece of the user's data, short enough for an error."""
    return text if len(text) <= _NAME_WIDTH else f"{text[: _NAME_WIDTH - 1]}…"


def refused_source(value: object, reason: str, fix: str, code: str = CODE) -> InvalidRequest:
    """The refusal of a whole data set."""
    return InvalidRequest([Fault("dataset.id", shown("dataset.id", str(value)), reason, fix, code)])


def refused_rows(source: str, rows_seen: int, faults: RowFaults) -> InvalidRequest:
    """The refusal of a data set for its rows: the first are listed, all are counted."""
    lines = [f"  {fault}" for fault in faults.first]
    if faults.count > len(lines):
        lines.append(f"  and {faults.count - len(lines):,} more.")
    reason = f"{faults.count:,} of {rows_seen:,} rows cannot be used:\n" + "\n".join(lines)
    fix = f"\n  {faults.needed} Columns with other names are named under [dataset]."
    refusal = InvalidRequest([Fault("dataset", shown("dataset", source) if source else "", reason, fix, CODE)])
    refusal.details |= {"fault_count": faults.count, "rows": [asdict(fault) for fault in faults.first]}
    return refusal


def no_rows(source: str) -> InvalidRequest:
    """The refusal of a data set without a row."""
    value = shown("dataset", source) if source else ""
    return InvalidRequest(
        [Fault("dataset", value, "It holds no rows.", "Give at least one row to learn from.", CODE)]
    )
