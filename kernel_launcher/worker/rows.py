"""The rows to train on: tokenised by rank 0, once, before the ranks meet; then mapped into memory by all of them."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher.data.chat.controls import control_warning
from kernel_launcher.data.lint import RunLinter
from kernel_launcher.data.rows.columns import Columns
from kernel_launcher.data.rows.faults import counted, listed
from kernel_launcher.data.rows.snapshot import file_digest, source_digest
from kernel_launcher.data.rows.source import read_rows
from kernel_launcher.data.show.first_row import first_row
from kernel_launcher.data.training.prepare import limits, prepare
from kernel_launcher.data.training.tally import CUT_BEFORE_ANSWER, NOTHING_TRAINED, SAME_AFTER_CUT, TOO_LONG
from kernel_launcher.worker.codec import TransformersCodec
from kernel_launcher.worker.errors import DataError, ModelLoadError
from kernel_launcher.worker.hub_rows import hub_rows
from kernel_launcher.worker.waiting import wait_for_first_rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kernel_launcher.data.lint import Finding, ModelTokens
    from kernel_launcher.data.training.tally import PrepareReport
    from kernel_launcher.spec.fields import Method
    from kernel_launcher.worker.assignment import Assignment, DataOrigin
    from kernel_launcher.worker.reporter import Reporter

_FILE = "train.arrow"
_ID_COLUMNS = ("input_ids", "prompt_ids", "chosen_ids", "rejected_ids")
_REASONS = {
    TOO_LONG: "too long",
    CUT_BEFORE_ANSWER: "cut before the answer",
    SAME_AFTER_CUT: "with two equal answers after the cut",
    NOTHING_TRAINED: "with nothing to train on",
}
_REPORTED = ("answers_cut", "difference_cut", "nothing_trained")
_PROGRESS_SECONDS = 5.0


def prepare_rows(assignment: Assignment, tokenizer: Any, model: ModelTokens, reporter: Reporter) -> bool:
    """Read, check and tokenise every row; the file appears when all of them are good. Whether any row is a chat.

    Raises:
        DataError: The rows cannot be had, or are not those that the cell checked.
        InvalidRequest: One of them fits no format, nothing is left to train on, or the linter finds an error that the
            job does not allow.
    """
    spec, method = assignment.spec, assignment.plan.method
    path = assignment.run.data / _FILE
    source = assignment.data.path or assignment.data.id or ""
    codec = TransformersCodec(tokenizer)
    if method.chat_template is not None and (warning := control_warning(codec)):
        reporter.warn(warning)
    linter = RunLinter(codec, method, model=model, source=source)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    report = prepare(
        _rows(assignment, reporter),
        Columns.of(spec.dataset),
        method,
        codec,
        write=path,
        lost=assignment.run.lost_rows,
        source=source,
        progress=_Progress(reporter),
        inspector=linter,
    )
    # Data workers are forked: with threads of the tokenizer's behind them it would warn in each.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    assert isinstance(method.micro_batch_size, int), "a plan decides it"
    summary = report.summary(method.micro_batch_size)
    row = first_row(path, partial(tokenizer.decode, clean_up_tokenization_spaces=False))
    reporter.put("data", **summary, row=row, peak=assignment.plan.peak_of_rows(report.lengths.longest))
    for line in _told(report, summary, row):
        reporter.say(line)
    chats = report.rows > report.plain_rows
    if method.chat_template is not None and not chats:
        reporter.warn("no row is a chat, so chat_template is not used, nor saved with the model.")
    for warning in (*_warnings(report, method), *_suspicions(linter.warnings)):
        reporter.warn(warning)
    return chats


def wait_for_rows(assignment: Assignment) -> None:
    """Return once rank 0 has prepared the rows."""
    wait_for_first_rank(assignment.run.data / _FILE, assignment)


def open_rows(assignment: Assignment, vocabulary: int) -> Any:
    """The prepared rows.

    Args:
        assignment: Whose run folder they are in.
        vocabulary: Rows of the model's embedding.

    Raises:
        ModelLoadError: A token of the tokenizer has no row in the embedding.
    """
    import pyarrow.compute as pc
    from datasets import Dataset

    rows = Dataset.from_file(str(assignment.run.data / _FILE))
    columns = [rows.data.column(name) for name in rows.column_names if name in _ID_COLUMNS]
    largest = max(pc.max(chunk.flatten()).as_py() or 0 for column in columns for chunk in column.chunks)
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


def _told(report: PrepareReport, summary: dict[str, Any], row: dict[str, Any]) -> Iterator[str]:
    """What the log has of the rows."""
    yield (
        f"{counted(report.kept, 'row')}, {counted(report.tokens, 'token')}, {report.trained_tokens:,} of them in the "
        f"loss; a row has {summary['p50']:,} (median), {summary['p95']:,} (95 %), {summary['max']:,} at most; "
        f"{summary['padding_share']:.0%} of a micro-batch is padding"
    )
    if gain := summary["packing"]:
        yield (
            f"packed into {counted(gain['sequences'], 'sequence')}, {gain['rows'] / gain['sequences']:.1f} rows "
            f"each; unpacked, {gain['padding_share_before']:.0%} would be padding"
        )
    size = f"{counted(row['tokens'], 'token')}, {row['trained']:,} of them ⟦trained⟧"
    yield f"row 0 as the model sees it, {size}:\n{row['text']}"


def _warnings(report: PrepareReport, method: Method) -> Iterator[str]:
    if report.cut:
        yield (
            f"{report.cut:,} of {counted(report.rows, 'row')} are longer than {limits(method)} and lost a part "
            f"(the longest has {report.lengths.longest:,}); {report.answer_cut:,} of them lost a part of an answer."
        )
    if report.dropped_by_reason:
        dropped = report.rows - report.kept
        why = ", ".join(f"{count:,} {_REASONS[reason]}" for reason, count in report.dropped_by_reason.items())
        rows = counted(report.rows, "row")
        yield f"{dropped:,} of {rows} are left out: {why} ({listed(report.dropped_rows, dropped)})."


def _suspicions(findings: Iterable[Finding]) -> Iterator[str]:
    """The linter's warnings, without what the report of the rows says already."""
    return (str(finding) for finding in findings if finding.code not in _REPORTED)


class _Progress:
    """Says in the log how far the tokenisation is."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._said_at = time.monotonic()

    def __call__(self, rows: int) -> None:
        if time.monotonic() - self._said_at > _PROGRESS_SECONDS:
            self._said_at = time.monotonic()
            self._reporter.say(f"{rows:,} rows tokenised")
