"""Whether the rows fit the method: in the cell, before anything starts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

from kernel_launcher.data.lint import WordLinter
from kernel_launcher.data.rows.examples import Messages
from kernel_launcher.data.rows.faults import RowFaults, column_names, no_rows, refused, refused_rows
from kernel_launcher.data.rows.formats import RowReader
from kernel_launcher.data.rows.readers import Broken
from kernel_launcher.data.rows.source import data_size, read_rows, suffix_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from kernel_launcher.data.lint import Finding
    from kernel_launcher.data.rows.columns import Columns
    from kernel_launcher.data.rows.faults import RowFault
    from kernel_launcher.data.rows.readers import Row

WHOLE_FILE_BYTES = 20_000_000
LINTED_BYTES = 5_000_000
# What can be tokenised within two seconds.
TOKENISED_BYTES = 4_000_000
FIRST_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Report:
    """What a look at the rows found.

    Attributes:
        source: Where they come from, for messages.
        rows_seen: Rows that were looked at.
        complete: Whether these were all.
        formats: How many rows are of each format.
        chats: How many rows need a chat template.
        faults: The first rows that cannot be used.
        fault_count: How many cannot be used in all.
        findings: What the words of the rows tell, errors first; empty where that was not asked for.
    """

    source: str
    rows_seen: int
    complete: bool
    formats: Mapping[str, int]
    chats: int
    faults: tuple[RowFault, ...]
    fault_count: int
    findings: tuple[Finding, ...] = ()

    def raise_if_faulty(self) -> None:
        """Refuse the data set if a row in it cannot be used, or if it has none.

        Raises:
            InvalidRequest: With the first faulty rows, and the number of all.
        """
        if self.rows_seen == 0:
            raise no_rows(self.source)
        if self.faults:
            raise refused_rows(self.source, self.rows_seen, self.faults, self.fault_count)


def check_rows(
    rows: Iterable[tuple[int, Row]],
    columns: Columns,
    method: str,
    limit: int | None = None,
    source: str = "",
    *,
    linter: WordLinter | None = None,
) -> Report:
    """Read every row, or the first ``limit``, as the method would.

    Args:
        rows: Numbered rows, as from ``read_rows`` or ``enumerate(list, 1)``.
        columns: The names that the user gave.
        method: ``sft_text`` or ``dpo``.
        limit: Stop after so many rows; None looks at all.
        source: Where the rows come from, for messages.
        linter: Sees each row that can be used.

    Raises:
        InvalidRequest: The named columns contradict each other, or the file cannot be read.
    """
    reader = RowReader(columns, method)
    faults = RowFaults(reader.needed)
    iterator = iter(rows)
    formats: Counter[str] = Counter()
    chats = 0
    for number, name, example in reader.examples(islice(iterator, limit), faults):
        formats[name] += 1
        chats += isinstance(example, Messages)
        if linter:
            linter.see_words(number, example)
    return Report(
        source=source,
        rows_seen=formats.total() + faults.count,
        complete=next(iterator, None) is None,
        formats=dict(formats.most_common()),
        chats=chats,
        faults=tuple(faults.first),
        fault_count=faults.count,
        findings=linter.findings() if linter else (),
    )


def check_file(path: Path, columns: Columns, method: str) -> Report:
    """Look at all rows of a file of up to 20 MB of data, or else at the first 1,000.

    Raises:
        InvalidRequest: The file cannot be read or holds no rows, or the named columns contradict each other.
    """
    rows = read_rows(path)
    if suffix_of(path) in (".csv", ".csv.gz"):
        rows = _under_a_header(rows, path, RowReader(columns, method))
    size = data_size(path)
    return check_rows(rows, columns, method, rows_to_check(size), str(path), linter=word_linter(size))


def rows_to_check(size: int) -> int | None:
    """How many rows the cell looks at in so many bytes of data, so that it answers within its two seconds.

    20 MB of chat rows take 0.3 s; the shortest of rows, of 90 bytes each, take 1.2 s.
    """
    return None if size <= WHOLE_FILE_BYTES else FIRST_ROWS


def word_linter(size: int) -> WordLinter | None:
    """What looks at the words of so many bytes of data; None if that takes too long: the job looks at all rows.

    5 MB of the shortest rows take 0.2 s.
    """
    return WordLinter() if size <= LINTED_BYTES else None


def _under_a_header(rows: Iterator[tuple[int, Row]], path: Path, reader: RowReader) -> Iterator[tuple[int, Row]]:
    """The same rows, if the first line named their columns: without a header it is itself a row."""
    number, first = next(rows)
    if not isinstance(first, Broken) and not reader.known_columns().intersection(first):
        reason = f"its first line names no known column: {', '.join(column_names(first))}."
        fix = f"The first line of a CSV file names the columns, with commas between them. {reader.needed}"
        raise refused(reason, fix, path)
    return chain([(number, first)], rows)
