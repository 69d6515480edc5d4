"""One look at a data set: its rows are read and tokenised once, as for training, and shown on request."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

from kernel_launcher.data.chat.compare import sides
from kernel_launcher.data.chat.mark import Marker
from kernel_launcher.data.lint import Linter, not_allowed
from kernel_launcher.data.rows.examples import Preference, Text
from kernel_launcher.data.rows.faults import DataRefusal, RowFaults, counted, no_rows, refused_rows
from kernel_launcher.data.rows.formats import RowReader
from kernel_launcher.data.show.tokens import token_rows
from kernel_launcher.data.show.view import DataView, Part, Row
from kernel_launcher.data.training.encode import Encoded, EncodedPair
from kernel_launcher.data.training.encoding import encode_texts, most_tokens, texts_of
from kernel_launcher.data.training.lengths import Lengths, padding_share
from kernel_launcher.data.training.pack import bins
from kernel_launcher.data.training.prepare import length_setting
from kernel_launcher.data.training.tally import LostRow, Tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kernel_launcher.data.chat.codec import Codec, Tokens
    from kernel_launcher.data.chat.mark import Marked
    from kernel_launcher.data.lint import Finding, HeldOut, ModelTokens
    from kernel_launcher.data.rows.columns import Columns
    from kernel_launcher.data.rows.examples import Example, Messages, PromptCompletion
    from kernel_launcher.data.rows.readers import Row as SourceRow
    from kernel_launcher.data.show.view import Kind
    from kernel_launcher.spec.fields import Method

# Two seconds of work at most, whatever the size of the file: a chat of 300 characters takes 0.3 ms.
MOST_ROWS = 5_000
MOST_CHARACTERS = 4_000_000
_WHY = {
    "cut": "loses {lost}",
    "answer_cut": "loses {lost}, of an answer too",
    "too_long": "is left out, as it is too long",
    "cut_before_answer": "is left out: the cut takes all of its answer",
    "same_after_cut": "is left out: its answers are equal once they are cut",
    "nothing_trained": "is left out: nothing of it would be trained",
}
_OF_THE_DATA = ("loss_on", "chat_template", "too_long", "max_prompt_length", "packing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is looked at, and how it would be trained.

    Attributes:
        source: Where the rows come from.
        model: Whose tokenizer and template they get.
        columns: The names that the user gave.
        method: The hyperparameters as planned.
        codec: The tokenizer with its template.
        tokens: What the model does with its tokens.
        held_out: What is held out, if that is known.
    """

    source: str
    model: str
    columns: Columns
    method: Method
    codec: Codec
    tokens: ModelTokens
    held_out: HeldOut | None = None


class Look:
    """The first rows of a data set, up to 5,000 of them or four million characters.

    Args:
        rows: Numbered rows, as from ``read_rows``.
        asked: How they are read.

    Raises:
        InvalidRequest: No row can be used, or the tokenizer lacks what they need.
    """

    def __init__(self, rows: Iterable[tuple[int, SourceRow]], asked: Asked) -> None:
        self._asked = asked
        self._marker = Marker(asked.codec, asked.method.loss_on)
        self._examples: dict[int, Example] = {}
        self._sizes: dict[int, int] = {}
        self._widths: list[int] = []
        self._linter = Linter(asked.codec, asked.method, model=asked.tokens, held_out=asked.held_out)
        listed = io.StringIO()
        self._tally = Tally(asked.method.too_long, listed)
        self._formats: Counter[str] = Counter()
        self._faults, self.complete = self._read(rows)
        self._lost = {
            row.row: row for row in (LostRow(**json.loads(line)) for line in listed.getvalue().splitlines())
        }

    def view(self, kind: Kind = "random", n: int = 5, first: int = 0) -> DataView:
        """The data set with at most ``n`` rows of a kind.

        Args:
            kind: ``random``, by the job's seed; the ``longest`` first; ``cut``: those that lose something or are left
                out; ``suspicious``: those that findings name.
            n: Rows at most.
            first: How many to pass over.
        """
        numbers = self.numbers(kind)
        method = self._asked.method
        names = (length_setting(method), *_OF_THE_DATA)
        settings = {"method": method.type, **{name: value for name in names if (value := getattr(method, name))}}
        return DataView(
            source=self._asked.source,
            model=self._asked.model,
            settings=settings,
            rows_seen=self._formats.total() + self._faults.count,
            complete=self.complete,
            formats=dict(self._formats.most_common()),
            micro_batch_size=_micro_batch(method),
            lengths=self._lengths,
            findings=self.findings,
            kind=kind,
            of_kind=len(numbers),
            rows=tuple(self.row(number) for number in numbers[first : first + n]),
        )

    def numbers(self, kind: Kind) -> list[int]:
        """The numbers of all rows of a kind, in the order in which they are shown."""
        match kind:
            case "random":
                return Random(self._asked.method.seed).sample(list(self._examples), len(self._examples))
            case "longest":
                return sorted(self._sizes, key=self._sizes.__getitem__, reverse=True)
            case "cut":
                return list(self._lost)
            case "suspicious":
                named = (row for finding in self.findings for row in finding.rows)
                return [row for row in dict.fromkeys(named) if row in self._examples]

    @property
    def uncut(self) -> Lengths:
        """The length of each row before the cut; of a pair, of its longer side."""
        return self._tally.lengths

    def row(self, number: int) -> Row:
        """One of the rows that were looked at, token by token."""
        example = self._examples[number]
        why = [_why(lost, self._asked.method)] if (lost := self._lost.get(number)) else []
        why += [finding.code for finding in self.findings if number in finding.rows]
        prompt = None if isinstance(example, Text) else self._marker.inference_prompt(example)
        return Row(number, tuple(self._parts(example)), prompt, tuple(why))

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What is suspicious about the rows and not allowed, errors first."""
        self._linter.refuse(self._faults)
        return not_allowed(self._linter.findings(), self._asked.method.allow)

    @cached_property
    def _lengths(self) -> Mapping[str, Any]:
        method = self._asked.method
        batch, packed = _micro_batch(method), self._packed
        report = self._tally.report(self._formats, packed if method.packing else None)
        rows = saves = None
        if packed:
            computed = 1 - report.unpacked_padding_share(batch), 1 - padding_share(packed, report.tokens, batch)
            rows, saves = round(len(self._widths) / len(packed), 2), round(1 - computed[0] / computed[1], 4) + 0.0
        return report.summary(batch) | {"packing_rows": rows, "packing_saves": saves}

    @cached_property
    def _packed(self) -> Lengths:
        """The sequences that rows of one text would share."""
        packed = Lengths()
        for members in bins(self._widths, most_tokens(self._asked.method), Random(self._asked.method.seed)):
            packed.add(sum(self._widths[member] for member in members))
        return packed

    def _read(self, rows: Iterable[tuple[int, SourceRow]]) -> tuple[RowFaults, bool]:
        """Look at the rows; those that cannot be used, and whether all were looked at."""
        asked, left = self._asked, MOST_CHARACTERS
        reader = RowReader(asked.columns, asked.method.type)
        faults = RowFaults(reader.needed)
        numbered = iter(rows)
        for number, name, example in reader.examples(islice(numbered, MOST_ROWS), faults):
            try:
                texts = texts_of(example, self._marker)
            except DataRefusal as refusal:
                faults.add(number, refusal)
                continue
            row = encode_texts(texts, self._tokens(texts), asked.codec, asked.method)
            self._formats[name] += 1
            self._examples[number] = example
            self._sizes[number] = _size(row)
            if self._tally.keeps(number, row) and isinstance(row, Encoded):
                self._widths.append(len(row.input_ids))
            self._linter.see(number, example, row)
            left -= sum(len(text.text) for text in texts)
            if left <= 0:
                break
        if not self._examples:
            count = faults.count
            raise refused_rows(asked.source, count, faults.first, count) if count else no_rows(asked.source)
        return faults, next(numbered, None) is None

    def _parts(self, example: Example) -> Iterator[Part]:
        codec, method = self._asked.codec, self._asked.method
        texts = texts_of(example, self._marker)
        tokens = self._tokens(texts)
        row = encode_texts(texts, tokens, codec, method)
        dropped = row.prompt_dropped if isinstance(row, EncodedPair) else 0
        for (name, side), text, its in zip(_named(example), texts, tokens, strict=True):
            yield Part(name, token_rows(side, text, its, codec, most_tokens(method), prompt_dropped=dropped))

    def _tokens(self, texts: Sequence[Marked]) -> list[Tokens]:
        return self._asked.codec.encode([text.text for text in texts])


def _why(lost: LostRow, method: Method) -> str:
    if method.too_long == "refuse" and lost.length > most_tokens(method):
        return "is too long, which refuses the run"
    return _WHY[lost.reason].format(lost=counted(lost.lost, "token"))


def _named(example: Example) -> list[tuple[str, Messages | PromptCompletion | Text]]:
    """What has a text of its own: the example, or both sides of a comparison."""
    if not isinstance(example, Preference):
        return [("", example)]
    chosen, rejected = sides(example)
    return [("chosen", chosen), ("rejected", rejected)]


def _micro_batch(method: Method) -> int:
    assert isinstance(method.micro_batch_size, int), "a plan decides it"
    return method.micro_batch_size


def _size(row: Encoded | EncodedPair) -> int:
    return max(row.length_chosen, row.length_rejected) if isinstance(row, EncodedPair) else row.length
