"""What becomes of the rows: how many are cut or left out, why, which, and how long they all are."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

from kernel_launcher.data.rows.faults import SHOWN_ROWS
from kernel_launcher.data.training.encode import EncodedPair
from kernel_launcher.data.training.lengths import Lengths, padding_share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kernel_launcher.data.training.encode import Encoded

TooLong = Literal["cut", "drop", "refuse"]
TOO_LONG = "too_long"
CUT_BEFORE_ANSWER = "cut_before_answer"
SAME_AFTER_CUT = "same_after_cut"
NOTHING_TRAINED = "nothing_trained"
CUT = "cut"
ANSWER_CUT = "answer_cut"


class LostRow(NamedTuple):
    """A row that is not trained as it was given.

    Attributes:
        row: Its number, from 1.
        reason: ``cut`` or ``answer_cut`` of a row that lost its end; of one that is left out ``too_long``,
            ``cut_before_answer``, ``same_after_cut`` (of a pair) or ``nothing_trained``.
        length: Its tokens before the cut; of a pair those of the longer side.
        lost: Its tokens that are not trained on; of a pair those of both sides.
    """

    row: int
    reason: str
    length: int
    lost: int


def read_lost(path: Path) -> Iterator[LostRow]:
    """The rows that are not trained as they were given, in order; none where the list is not there yet."""
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield LostRow(**json.loads(line))
    except FileNotFoundError:
        return


@dataclass(frozen=True, slots=True)
class PrepareReport:
    """What became of the rows.

    Attributes:
        rows: Rows read.
        kept: Rows written.
        cut: Kept rows that lost a part to the longest length allowed.
        answer_cut: Those of them that lost trained tokens.
        dropped_by_reason: Rows left out; see ``LostRow``.
        dropped_rows: The numbers of the first of them.
        formats: How many rows are of each format.
        plain_rows: Rows that are plain text, without the chat template around them.
        tokens: Tokens written, as the model reads them: of a pair, the prompt counts twice.
        trained_tokens: Those of them that are in the loss.
        lengths: Of all rows, before the cut; of a pair, the longer side.
        widths: Of the kept rows, after the cut.
        sequences: Sequences a row: 2 for pairs.
        packed: Of the sequences that rows were packed into; None without packing.
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
    lengths: Lengths
    widths: Lengths
    sequences: int = 1
    packed: Lengths | None = None

    def padding_share(self, batch: int) -> float:
        """The share of padding in random micro-batches of so many rows, or packed sequences."""
        if self.packed is not None:
            return padding_share(self.packed, self.tokens, batch)
        return self.unpacked_padding_share(batch)

    def unpacked_padding_share(self, batch: int) -> float:
        """The same, if each row had a sequence of its own."""
        return padding_share(self.widths, self.tokens, batch, sequences=self.sequences)

    def summary(self, batch: int) -> dict[str, Any]:
        """The figures of a job, for the size of its micro-batches; ``packing`` is None where rows are not packed."""
        gain = None
        if self.packed is not None:
            before = round(self.unpacked_padding_share(batch), 4)
            gain = {"sequences": len(self.packed), "rows": self.kept, "padding_share_before": before}
        return {
            "rows": self.rows,
            "kept": self.kept,
            "cut": self.cut,
            "answer_cut": self.answer_cut,
            "dropped_by_reason": dict(self.dropped_by_reason),
            "p50": self.lengths.percentile(50),
            "p95": self.lengths.percentile(95),
            "max": self.lengths.longest,
            "padding_share": round(self.padding_share(batch), 4),
            "packing": gain,
            "tokens": self.tokens,
            "trained_tokens": self.trained_tokens,
        }


@dataclass(slots=True)
class Tally:
    """Counts the rows one by one, and says which of them are kept.

    Attributes:
        too_long: What happens to rows that are too long.
        listed: Where each row that is not trained as it was given is listed, one JSON object a line.
        over: The first rows that are too long where that is refused.
        over_count: How many they are.
    """

    too_long: TooLong
    listed: IO[str] | None = None
    over: list[int] = field(default_factory=list)
    over_count: int = 0
    kept: int = 0
    cut: int = 0
    answer_cut: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    plain_rows: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_rows: list[int] = field(default_factory=list)
    lengths: Lengths = field(default_factory=Lengths)
    widths: Lengths = field(default_factory=Lengths)
    sequences: int = 1

    def keeps(self, number: int, row: Encoded | EncodedPair) -> bool:
        """Count a row; whether there is something to learn from it."""
        size = _size(row)
        self.sequences = size.sequences
        self.lengths.add(size.length)
        reason = self._why_dropped(row, size)
        if row.cut and self.too_long == "refuse":
            self.over_count += 1
            if len(self.over) < SHOWN_ROWS:
                self.over.append(number)
        if reason:
            self._list(LostRow(number, reason, size.length, size.tokens + size.lost))
            self.dropped[reason] += 1
            if len(self.dropped_rows) < SHOWN_ROWS:
                self.dropped_rows.append(number)
            return False
        if row.cut:
            self._list(LostRow(number, ANSWER_CUT if size.answer_cut else CUT, size.length, size.lost))
        self.kept += 1
        self.cut += row.cut
        self.answer_cut += size.answer_cut
        self.tokens += size.tokens
        self.trained_tokens += size.trained
        self.widths.add(size.width)
        return True

    def report(self, formats: Counter[str], packed: Lengths | None) -> PrepareReport:
        """What was counted."""
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
            lengths=self.lengths,
            widths=self.widths,
            sequences=self.sequences,
            packed=packed,
        )

    def _why_dropped(self, row: Encoded | EncodedPair, size: _Size) -> str:
        if row.cut and self.too_long == "drop":
            return TOO_LONG
        if not size.trained:
            return CUT_BEFORE_ANSWER if size.answer_cut else NOTHING_TRAINED
        if isinstance(row, EncodedPair) and size.answer_cut and row.chosen_ids == row.rejected_ids:
            return SAME_AFTER_CUT
        return ""

    def _list(self, lost: LostRow) -> None:
        if self.listed is not None:
            self.listed.write(f"{json.dumps(lost._asdict(), separators=(',', ':'))}\n")


class _Size(NamedTuple):
    """Tokens of a row: before the cut, of its longest sequence, of all sequences, lost ones, those in the loss."""

    sequences: int
    length: int
    width: int
    tokens: int
    lost: int
    trained: int
    answer_cut: bool


def _size(row: Encoded | EncodedPair) -> _Size:
    if not isinstance(row, EncodedPair):
        tokens = len(row.input_ids)
        return _Size(1, row.length, tokens, tokens, row.length - tokens, row.trained_tokens, row.answer_cut)
    prompt, chosen, rejected = len(row.prompt_ids), len(row.chosen_ids), len(row.rejected_ids)
    tokens = 2 * prompt + chosen + rejected
    return _Size(
        sequences=2,
        length=max(row.length_chosen, row.length_rejected),
        width=prompt + max(chosen, rejected),
        tokens=tokens,
        lost=row.length_chosen + row.length_rejected - tokens,
        # A comparison with one side only is none.
        trained=chosen + rejected if chosen and rejected else 0,
        answer_cut=row.chosen_cut or row.rejected_cut,
    )
