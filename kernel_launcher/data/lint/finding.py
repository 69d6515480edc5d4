"""What was found, and the book that it is kept in: a count and the first rows of each kind, whatever their number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kernel_launcher.data.lint.catalogue import CATALOGUE
from kernel_launcher.data.rows.faults import SHOWN_ROWS, counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about the data set that a person should know before training on it.

    Attributes:
        code: Its kind, as in ``allow``.
        severity: ``error``: what is learned is not what is meant. ``warning``: it looks like a mistake.
        message: What is wrong, and why it matters.
        rows: The numbers of the first rows that have it.
        count: How many rows have it.
        fix: What to do about it.
    """

    code: str
    severity: Severity
    message: str
    rows: tuple[int, ...]
    count: int
    fix: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message} See {listed(self.rows, self.count)}. {self.fix}"


@dataclass(slots=True)
class Rows:
    """Rows that have something in common: how many, and the first of them. Each is counted once."""

    detail: str = ""
    count: int = 0
    first: list[int] = field(default_factory=list)
    _last: int = 0

    def add(self, number: int) -> None:
        """Count one more, unless it was the last one, too."""
        if number == self._last:
            return
        self._last = number
        self.count += 1
        if len(self.first) < SHOWN_ROWS:
            self.first.append(number)


class Book:
    """What was found so far, by code."""

    def __init__(self) -> None:
        self._found: dict[str, Rows] = {}

    def add(self, code: str, number: int, detail: str = "") -> None:
        """Note that a row has it; the detail is that of the first."""
        if code not in self._found:
            self._found[code] = Rows(detail)
        self._found[code].add(number)

    def add_all(self, code: str, numbers: Iterable[int], detail: str = "") -> None:
        """Note it for each of these rows."""
        for number in numbers:
            self.add(code, number, detail)

    def put(self, code: str, rows: Rows) -> None:
        """Note what was counted elsewhere."""
        self._found[code] = rows

    def findings(self, of: int) -> tuple[Finding, ...]:
        """All of it, errors first, each in the order of the catalogue.

        Args:
            of: How many rows were looked at.
        """
        found = list(self._findings(of))
        return (*(f for f in found if f.severity == "error"), *(f for f in found if f.severity == "warning"))

    def _findings(self, of: int) -> Iterator[Finding]:
        for code, kind in CATALOGUE.items():
            if code in self._found:
                rows = self._found[code]
                error = kind.error_from is not None and rows.count >= kind.error_from * of
                said = kind.message.format(rows=f"{rows.count:,} of {counted(of, 'row')}", detail=rows.detail)
                yield Finding(code, "error" if error else "warning", said, tuple(rows.first), rows.count, kind.fix)
