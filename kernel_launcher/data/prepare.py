"""All rows of a data set -> one Arrow file of token ids and labels, in memory that does not grow with the rows."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernel_launcher.data.encode import label
from kernel_launcher.data.examples import Preference
from kernel_launcher.data.faults import SHOWN_ROWS, DataRefusal, RowFaults, no_rows, refused, refused_rows
from kernel_launcher.data.formats import RowReader
from kernel_launcher.data.mark import Marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from kernel_launcher.data.codec import Codec
    from kernel_launcher.data.columns import Columns
    from kernel_launcher.data.encode import Encoded
    from kernel_launcher.data.examples import Example
    from kernel_launcher.data.mark import LossOn, Marked
    from kernel_launcher.data.readers import Row
    from kernel_launcher.errors import InvalidRequest

_BATCH_ROWS = 500
_BATCH_CHARACTERS = 4_000_000
CUT_BEFORE_ANSWER = "cut_before_answer"
NOTHING_TRAINED = "nothing_trained"


@dataclass(frozen=True, slots=True)
class PrepareReport:
    """What became of the rows.

    Attributes:
        rows: Rows read.
        kept: Rows written.
        cut: Kept rows that lost their end to ``max_length``.
        answer_cut: Those of them that lost trained tokens.
        dropped_by_reason: Rows left out, because nothing of them would be trained.
        dropped_rows: The numbers of the first of them.
        formats: How many rows are of each format.
        plain_rows: Rows that are plain text, without the chat template around them.
        tokens: Tokens written.
        trained_tokens: Those of them that are in the loss.
        longest: Tokens of the longest row before the cut.
    """

    rows: int
    kept: int
    cut: int
    answer_cut: int
    dropped_by_reason: Mapping[str, int]
    dropped_rows: tuple[int, ...]
    formats: Mapping[str, int]
    plain_rows: int
    tokens: int
    trained_tokens: int
    longest: int


def prepare(
    rows: Iterable[tuple[int, Row]],
    columns: Columns,
    method: str,
    codec: Codec,
    *,
    max_length: int,
    loss_on: LossOn,
    write: Path,
    source: str = "",
    progress: Callable[[int], None] | None = None,
) -> PrepareReport:
    """Encode every row and write the Arrow stream that ``datasets.Dataset.from_file`` maps into memory.

    The file has the columns ``input_ids`` and ``labels``, both ``list<int32>``. It appears whole or not at all.

    Args:
        rows: Numbered rows, as from ``read_rows``, or ``enumerate(dataset, 1)``.
        columns: The names that the user gave.
        method: The training method.
        codec: The tokenizer.
        max_length: Tokens a row at most; what is longer loses its end.
        loss_on: Which tokens are trained; see ``Marker``.
        write: The file to write. Its folder exists.
        source: Where the rows come from, for messages.
        progress: Called with the number of rows done, after each batch.

    Raises:
        InvalidRequest: A row fits no format or not the chat template (the first are listed, all are counted), there
            are no rows, or nothing of them is left to train on (code ``empty_labels``).
    """
    reader = RowReader(columns, method)
    faults = RowFaults(reader.needed)
    formats: Counter[str] = Counter()
    tally = _Tally()
    marked = _marked(reader.examples(rows, faults), Marker(codec, loss_on), faults, formats)
    with _arrow_file(write) as append:
        for batch in _batches(marked):
            if not faults.count:  # else the file will never be used: go on only to count the faults
                tokens = codec.encode([row.text for _, row in batch])
                pairs = zip(batch, tokens, strict=True)
                tally.plain_rows += sum(row.plain for _, row in batch)
                append(tally.keep([(number, label(row, its, codec, max_length)) for (number, row), its in pairs]))
            if progress:
                progress(formats.total() + faults.count)
        rows_seen = formats.total() + faults.count
        if rows_seen == 0:
            raise no_rows(source)
        if faults.count:
            raise refused_rows(source, rows_seen, faults.first, faults.count)
        if tally.kept == 0:
            raise _nothing_left(source, tally, max_length)
    return tally.report(formats)


@dataclass(slots=True)
class _Tally:
    kept: int = 0
    cut: int = 0
    answer_cut: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    longest: int = 0
    plain_rows: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_rows: list[int] = field(default_factory=list)

    def keep(self, batch: list[tuple[int, Encoded]]) -> list[Encoded]:
        """Count the rows of a batch; those with something to learn."""
        return [row for number, row in batch if self._counts(number, row)]

    def _counts(self, number: int, row: Encoded) -> bool:
        self.longest = max(self.longest, row.length)
        trained = row.trained_tokens
        if not trained:
            self.dropped[CUT_BEFORE_ANSWER if row.answer_cut else NOTHING_TRAINED] += 1
            if len(self.dropped_rows) < SHOWN_ROWS:
                self.dropped_rows.append(number)
            return False
        self.kept += 1
        self.cut += row.cut
        self.answer_cut += row.answer_cut
        self.tokens += len(row.input_ids)
        self.trained_tokens += trained
        return True

    def report(self, formats: Counter[str]) -> PrepareReport:
        return PrepareReport(
            rows=formats.total(),
            kept=self.kept,
            cut=self.cut,
            answer_cut=self.answer_cut,
            dropped_by_reason=dict(self.dropped),
            dropped_rows=tuple(self.dropped_rows),
            formats=dict(formats.most_common()),
            plain_rows=self.plain_rows,
            tokens=self.tokens,
            trained_tokens=self.trained_tokens,
            longest=self.longest,
        )


def _marked(
    examples: Iterable[tuple[int, str, Example]], marker: Marker, faults: RowFaults, formats: Counter[str]
) -> Iterator[tuple[int, Marked]]:
    for number, name, example in examples:
        if isinstance(example, Preference):
            raise TypeError("preference rows have no encoding here")
        try:
            marked = marker.mark(example)
        except DataRefusal as refusal:
            faults.add(number, refusal)
        else:
            formats[name] += 1
            yield number, marked


def _batches(rows: Iterable[tuple[int, Marked]]) -> Iterator[list[tuple[int, Marked]]]:
    batch: list[tuple[int, Marked]] = []
    characters = 0
    for number, row in rows:
        batch.append((number, row))
        characters += len(row.text)
        if len(batch) == _BATCH_ROWS or characters > _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


@contextmanager
def _arrow_file(path: Path) -> Iterator[Callable[[list[Encoded]], None]]:
    """A function that appends rows to an Arrow stream; the file appears when all went well."""
    import pyarrow as pa

    numbers = pa.list_(pa.int32())
    schema = pa.schema({"input_ids": numbers, "labels": numbers})
    temporary = path.with_name(f".{path.name}.{os.getpid()}")

    try:
        with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_stream(file, schema) as stream:

            def append(rows: list[Encoded]) -> None:
                if not rows:  # an empty batch has no largest token, no longest row
                    return
                ids = pa.array([row.input_ids for row in rows], numbers)
                labels = pa.array([row.labels for row in rows], numbers)
                stream.write_batch(pa.record_batch([ids, labels], schema=schema))

            yield append
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _nothing_left(source: str, tally: _Tally, max_length: int) -> InvalidRequest:
    rows = ", ".join(map(str, tally.dropped_rows))
    more = tally.dropped.total() - len(tally.dropped_rows)
    listed = f"rows {rows} and {more:,} more" if more else f"rows {rows}"
    if tally.dropped[CUT_BEFORE_ANSWER]:
        reason = f"within {max_length:,} tokens no row reaches what it should learn ({listed})."
        fix = f"Raise max_seq_length (the longest row has {tally.longest:,} tokens), or shorten the prompts."
    else:
        reason = f"the chat template leaves nothing of any answer ({listed})."
        fix = "Look at the rows, or use a model with another chat template."
    return refused(reason, fix, source, "empty_labels")
