"""What can be wrong with a row, and how the rows that cannot be used are told."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.secrets import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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

    @property
    def told(self) -> str:
        """The reason, with the columns."""
        return f"{self.reason} Columns: {', '.join(self.found)}." if self.found else self.reason

    def __str__(self) -> str:
        return f"row {self.row}: {self.told}"


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


def listed(rows: Sequence[int], count: int = 0) -> str:
    """Row numbers in words: the first of them, and of ``count`` how many more there are."""
    numbers = f"row{'s' if len(rows) > 1 else ''} {', '.join(map(str, rows))}"
    return numbers if count <= len(rows) else f"{numbers} and {count - len(rows):,} more"


def counted(count: int, noun: str) -> str:
    """A number of things in words: ``1 row``, ``1,200 rows``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def refused(reason: str, fix: str, source: object = "", code: str = CODE) -> InvalidRequest:
    """The refusal of a data set; ``source`` is what the user gave, where that is known."""
    value = shown("dataset.id", str(source)) if source else ""
    return InvalidRequest([Fault("dataset.id" if value else "dataset", value, reason, fix, code)])


def refused_rows(source: str, rows_seen: int, first: Sequence[RowFault], count: int) -> InvalidRequest:
    """The refusal of a data set for its rows: the first are listed, all are counted."""
    # What the method needs is no news to a line that is broken, or to a chat that the template refuses.
    misfits = any(fault.found for fault in first)
    fix = (
        f"{first[0].needed} Columns with other names are named under [dataset]."
        if misfits
        else "Mend or remove them."
    )
    lines = [f"  {line}" for line in _lines(first, count)]
    reason = f"{count:,} of {counted(rows_seen, 'row')} cannot be used."
    refusal = refused(reason, "\n".join([fix, *lines]), source)
    refusal.details |= {"fault_count": count, "rows": [asdict(fault) for fault in first]}
    return refusal


def _lines(first: Sequence[RowFault], count: int) -> Iterator[str]:
    """One line a row; one for all of them where all say the same."""
    if len({(fault.reason, fault.found) for fault in first}) == 1:
        yield f"{listed([fault.row for fault in first])}: {first[0].told}"
    else:
        yield from map(str, first)
    if count > len(first):
        yield f"and {count - len(first):,} more."


def no_chat_template(source: str = "") -> InvalidRequest:
    """The refusal of chats for a model that cannot write them."""
    fix = 'Name one, chat_template = "chatml" or your own file, or give prompt and completion, or text.'
    return refused("these rows are chats, and the model has no chat template.", fix, source)


def no_rows(source: str) -> InvalidRequest:
    """The refusal of a data set without a row."""
    return refused("it holds no rows.", "Give at least one row to learn from.", source)
