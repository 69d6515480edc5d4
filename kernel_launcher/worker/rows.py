"""The rows to train on: tokenised by rank 0, once, before the ranks meet; then mapped into memory by all of them."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher.data.columns import Columns
from kernel_launcher.data.prepare import prepare
from kernel_launcher.data.snapshot import file_digest, source_digest
from kernel_launcher.data.source import read_rows
from kernel_launcher.worker.codec import TransformersCodec
from kernel_launcher.worker.errors import DataError, ModelLoadError
from kernel_launcher.worker.hub_rows import hub_rows
from kernel_launcher.worker.waiting import wait_for_first_rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kernel_launcher.data.prepare import PrepareReport
    from kernel_launcher.worker.assignment import Assignment, DataOrigin
    from kernel_launcher.worker.reporter import Reporter

_FILE = "train.arrow"
_PROGRESS_SECONDS = 5.0


def prepare_rows(assignment: Assignment, tokenizer: Any, reporter: Reporter) -> None:
    """Read, check and tokenise every row; the file appears when all of them are good.

    Raises:
        DataError: The rows cannot be had, or are not those that the cell checked.
        InvalidRequest: One of them fits no format, or nothing is left to train on.
    """
    spec, method = assignment.spec, assignment.plan.method
    assert method.max_seq_length is not None
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    report = prepare(
        _rows(assignment, reporter),
        Columns.of(spec.dataset),
        method.type,
        TransformersCodec(tokenizer),
        max_length=method.max_seq_length,
        loss_on=method.loss_on,
        write=assignment.run.data / _FILE,
        source=assignment.data.path or assignment.data.id or "",
        progress=_Progress(reporter),
    )
    # Data workers are forked: with threads of the tokenizer's behind them it would warn in each.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    reporter.say(f"{report.kept:,} rows, {report.tokens:,} tokens, {report.trained_tokens:,} of them in the loss")
    for warning in _warnings(report, method.max_seq_length):
        reporter.warn(warning)


def open_rows(assignment: Assignment, vocabulary: int) -> Any:
    """The prepared rows, as soon as they are there.

    Args:
        assignment: Whose run folder they are in.
        vocabulary: Rows of the model's embedding.

    Raises:
        ModelLoadError: A token of the tokenizer has no row in the embedding.
    """
    import pyarrow.compute as pc
    from datasets import Dataset

    path = assignment.run.data / _FILE
    wait_for_first_rank(path, assignment)
    rows = Dataset.from_file(str(path))
    largest = max(pc.max(chunk.flatten()).as_py() for chunk in rows.data.column("input_ids").chunks)
    if largest >= vocabulary:
        raise ModelLoadError(
            f"the tokenizer wrote token {largest}, and the model knows {vocabulary} tokens only.",
            "Tokenizer and weights are not of the same model; nothing is resized silently.",
        )
    return rows


def _rows(assignment: Assignment, reporter: Reporter) -> Iterable[tuple[int, Any]]:
    data = assignment.data
    if data.path is not None:
        return _from_file(Path(data.path), data)
    assert data.id is not None
    return enumerate(hub_rows(data.id, assignment.spec.dataset.split, partial(reporter.put, "download")), 1)


def _from_file(path: Path, data: DataOrigin) -> Iterator[tuple[int, Any]]:
    """The rows of a file that is, from the first row to the last, the one that the cell saw."""
    _check_unchanged(path, data)
    yield from read_rows(path)
    _check_unchanged(path, data)


def _check_unchanged(path: Path, data: DataOrigin) -> None:
    digest = file_digest if data.kind == "snapshot" else source_digest
    try:
        same = digest(path) == data.digest
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}.", "Put it back, and run the cell again."
        ) from error
    if not same:
        raise DataError(
            f"{path}: the file changed after the cell was run.",
            "Run the cell again to train on what it holds now, or put back what it held.",
        )


def _warnings(report: PrepareReport, max_length: int) -> Iterable[str]:
    if report.cut:
        yield (
            f"{report.cut:,} of {report.rows:,} rows are longer than max_seq_length = {max_length:,} tokens and lost "
            f"their end (the longest has {report.longest:,}); {report.answer_cut:,} of them lost a part of an answer."
        )
    if report.dropped_by_reason:
        dropped = report.rows - report.kept
        first = ", ".join(map(str, report.dropped_rows))
        yield f"{dropped:,} of {report.rows:,} rows are left out: nothing in them would be trained (first: {first})."


class _Progress:
    """Says in the log how far the tokenisation is."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._said_at = time.monotonic()

    def __call__(self, rows: int) -> None:
        if time.monotonic() - self._said_at > _PROGRESS_SECONDS:
            self._said_at = time.monotonic()
            self._reporter.say(f"{rows:,} rows tokenised")
