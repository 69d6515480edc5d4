"""All rows of a data set -> one Arrow file of token ids, in memory that does not grow with the rows."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

from kernel_launcher.data.chat.mark import Marker
from kernel_launcher.data.rows.faults import DataRefusal, RowFaults, counted, listed, no_rows, refused, refused_rows
from kernel_launcher.data.rows.formats import RowReader
from kernel_launcher.data.training.encoding import encode_texts, most_tokens, texts_of
from kernel_launcher.data.training.table import PackedTable, Table, appearing
from kernel_launcher.data.training.tally import CUT_BEFORE_ANSWER, SAME_AFTER_CUT, TOO_LONG, Tally
from kernel_launcher.errors import Fault, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kernel_launcher.data.chat.codec import Codec
    from kernel_launcher.data.rows.columns import Columns
    from kernel_launcher.data.rows.examples import Example
    from kernel_launcher.data.rows.readers import Row
    from kernel_launcher.data.training.encode import Encoded, EncodedPair
    from kernel_launcher.data.training.encoding import Texts
    from kernel_launcher.data.training.tally import PrepareReport
    from kernel_launcher.spec.fields import Method

_BATCH_ROWS = 500
_BATCH_CHARACTERS = 4_000_000
_COLUMNS = {"sft_text": ("input_ids", "labels"), "dpo": ("prompt_ids", "chosen_ids", "rejected_ids")}


class Inspector(Protocol):
    """Looks at each row on its way, and may refuse them all at the end."""

    def see(self, number: int, example: Example, row: Encoded | EncodedPair) -> None:
        """Look at a row, cut as it would be trained, whether it is kept or not."""

    def judge(self) -> None:
        """Called after the last row, before the file appears.

        Raises:
            InvalidRequest: The rows must not be trained on.
        """


def prepare(
    rows: Iterable[tuple[int, Row]],
    columns: Columns,
    method: Method,
    codec: Codec,
    *,
    write: Path,
    lost: Path | None = None,
    source: str = "",
    progress: Callable[[int], None] | None = None,
    inspector: Inspector | None = None,
) -> PrepareReport:
    """Encode every row and write the Arrow stream that ``datasets.Dataset.from_file`` maps into memory.

    The file appears whole or not at all. Its columns are ``input_ids`` and ``labels``, with packing also ``lengths``
    (of the rows in a sequence, in order); for preferences ``prompt_ids``, ``chosen_ids`` and ``rejected_ids``. Each
    of them is a ``list<int32>``.

    Args:
        rows: Numbered rows, as from ``read_rows``, or ``enumerate(dataset, 1)``.
        columns: The names that the user gave.
        method: The hyperparameters as planned: lengths, what happens to longer rows, what is trained, packing.
        codec: The tokenizer.
        write: The file to write. Its folder exists.
        lost: The list of rows that are cut or left out, which is written with it; ``read_lost`` reads it.
        source: Where the rows come from, for messages.
        progress: Called with the number of rows done, after each batch.
        inspector: Sees each row.

    Raises:
        InvalidRequest: A row fits no format or not the chat template (the first are listed, all are counted), or is
            too long where that is refused; there are no rows; or nothing of them is left to train on (code
            ``empty_labels``).
    """
    reader = RowReader(columns, method.type)
    faults = RowFaults(reader.needed)
    formats: Counter[str] = Counter()
    marked = _marked(reader.examples(rows, faults), Marker(codec, method.loss_on), faults, formats)
    with _files(write, lost, method) as (table, list_file):
        tally = Tally(method.too_long, list_file)
        for batch in _batches(marked):
            if not faults.count:  # else the file will never be used: go on only to count the faults
                rows_of_batch = _encoded(batch, codec, method)
                if inspector:
                    for one, row in rows_of_batch:
                        inspector.see(one.number, one.example, row)
                tally.plain_rows += sum(one.marked[0].plain for one in batch)
                kept = [row for one, row in rows_of_batch if tally.keeps(one.number, row)]
                table.append([[getattr(row, name) for row in kept] for name in _COLUMNS[method.type]])
            if progress:
                progress(formats.total() + faults.count)
        _judge(tally, faults, formats.total() + faults.count, method, source)
        if inspector:
            inspector.judge()
    return tally.report(formats, table.sequences if isinstance(table, PackedTable) else None)


class _MarkedRow(NamedTuple):
    number: int
    example: Example
    marked: Texts


@contextmanager
def _files(write: Path, lost: Path | None, method: Method) -> Iterator[tuple[Table, IO[str]]]:
    """Both files, which appear when all went well."""
    with (
        appearing(lost) if lost else nullcontext(Path(os.devnull)) as list_path,
        list_path.open("w", encoding="utf-8") as list_file,
        appearing(write) as table_path,
        _table(table_path, method) as table,
    ):
        yield table, list_file


def _table(path: Path, method: Method) -> Table:
    if not method.packing:
        return Table(path, _COLUMNS[method.type])
    return PackedTable(path, capacity=most_tokens(method), seed=method.seed)


def _marked(
    examples: Iterable[tuple[int, str, Example]], marker: Marker, faults: RowFaults, formats: Counter[str]
) -> Iterator[_MarkedRow]:
    for number, name, example in examples:
        try:
            marked = texts_of(example, marker)
        except DataRefusal as refusal:
            faults.add(number, refusal)
        else:
            formats[name] += 1
            yield _MarkedRow(number, example, marked)


def _batches(rows: Iterable[_MarkedRow]) -> Iterator[list[_MarkedRow]]:
    batch: list[_MarkedRow] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += sum(len(marked.text) for marked in row.marked)
        if len(batch) == _BATCH_ROWS or characters > _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _encoded(batch: list[_MarkedRow], codec: Codec, method: Method) -> list[tuple[_MarkedRow, Encoded | EncodedPair]]:
    tokens = iter(codec.encode([marked.text for row in batch for marked in row.marked]))
    return [(row, encode_texts(row.marked, islice(tokens, len(row.marked)), codec, method)) for row in batch]


def _judge(tally: Tally, faults: RowFaults, rows: int, method: Method, source: str) -> None:
    """Refuse the rows if they cannot be trained on."""
    if rows == 0:
        raise no_rows(source)
    if faults.count:
        raise refused_rows(source, rows, faults.first, faults.count)
    if tally.over_count:
        raise InvalidRequest([_too_long(tally, rows, method)])
    if tally.kept == 0:
        raise _nothing_left(source, tally, method)


def _too_long(tally: Tally, rows: int, method: Method) -> Fault:
    reason = (
        f"{tally.over_count:,} of {counted(rows, 'row')} are longer than {limits(method)} "
        f"({listed(tally.over, tally.over_count)}); the longest has {tally.lengths.longest:,} tokens."
    )
    fix = f'Raise {length_setting(method)}, or set too_long to "cut" or "drop".'
    return Fault("method.too_long", "'refuse'", reason, fix)


def _nothing_left(source: str, tally: Tally, method: Method) -> InvalidRequest:
    rows = listed(tally.dropped_rows, tally.dropped.total())
    raised = f"Raise {length_setting(method)} (the longest row has {tally.lengths.longest:,} tokens)"
    if tally.dropped[TOO_LONG]:
        reason = f'every row that could be trained is longer than {limits(method)}, and too_long is "drop" ({rows}).'
        fix = f'{raised}, or set too_long to "cut".'
    elif tally.dropped[CUT_BEFORE_ANSWER] or tally.dropped[SAME_AFTER_CUT]:
        reason = f"within {most_tokens(method):,} tokens no row reaches what it should learn ({rows})."
        fix = f"{raised}, or shorten the prompts."
    else:
        reason = f"the chat template leaves nothing of any answer ({rows})."
        fix = "Look at the rows, or use a model with another chat template."
    return refused(reason, fix, source, "empty_labels")


def length_setting(method: Method) -> str:
    """What the longest length allowed is called."""
    return "max_length" if method.type == "dpo" else "max_seq_length"


def limits(method: Method) -> str:
    """The lengths that a row must keep to, in words."""
    most = f"{length_setting(method)} = {most_tokens(method):,} tokens"
    if method.type == "dpo" and method.max_prompt_length is not None:
        return f"{most}, or their prompts than max_prompt_length = {method.max_prompt_length:,}"
    return most
