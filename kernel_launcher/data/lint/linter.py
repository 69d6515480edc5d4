"""The linter: one pass over the rows of a data set, in memory that does not hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_launcher.data.chat.mark import Marker
from kernel_launcher.data.lint.finding import Book, Rows
from kernel_launcher.data.lint.parts import parts_of
from kernel_launcher.data.lint.repeats import RepeatFindings
from kernel_launcher.data.lint.template import TemplateFindings
from kernel_launcher.data.lint.texts import TextFindings
from kernel_launcher.data.lint.tokens import ModelTokens, TokenFindings
from kernel_launcher.data.rows.faults import DataRefusal, RowFaults
from kernel_launcher.data.rows.formats import RowReader
from kernel_launcher.data.training.encode import EncodedPair
from kernel_launcher.data.training.encoding import encode_texts, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernel_launcher.data.chat.codec import Codec
    from kernel_launcher.data.lint.finding import Finding
    from kernel_launcher.data.lint.parts import Parts
    from kernel_launcher.data.lint.repeats import HeldOut
    from kernel_launcher.data.rows.columns import Columns
    from kernel_launcher.data.rows.examples import Example
    from kernel_launcher.data.rows.readers import Row
    from kernel_launcher.data.training.encode import Encoded
    from kernel_launcher.spec.fields import Method

_UNKNOWN = ModelTokens()


class WordLinter:
    """Looks at what rows say, without a tokenizer; 3 us a row.

    Args:
        held_out: What is held out, if that is known.
    """

    def __init__(self, held_out: HeldOut | None = None) -> None:
        self._book = Book()
        self._rows = 0
        self._texts = TextFindings(self._book)
        self._repeats = RepeatFindings(self._book, held_out)

    def see_words(self, number: int, example: Example) -> Parts:
        """Look at one row; returns it taken apart."""
        parts = parts_of(example)
        self._rows += 1
        self._texts.see(number, example, parts)
        self._repeats.see(number, example, parts)
        return parts

    def findings(self) -> tuple[Finding, ...]:
        """What was found, errors first. Called once, after the last row."""
        self._texts.finish()
        self._repeats.finish()
        return self._book.findings(self._rows)


class Linter(WordLinter):
    """Looks at rows as the trainer gets them; 6 us a row, where rendering and tokenising take 100 and more.

    Args:
        codec: The tokenizer with its template.
        method: The hyperparameters as planned.
        model: What the model does with its tokens.
        held_out: What is held out, if that is known.
    """

    def __init__(
        self, codec: Codec, method: Method, *, model: ModelTokens = _UNKNOWN, held_out: HeldOut | None = None
    ) -> None:
        super().__init__(held_out)
        self._drops = method.too_long == "drop"
        self._template = TemplateFindings(self._book, codec)
        # As the trained model will.
        self._tokens = TokenFindings(self._book, codec, model.stopping_at(Marker(codec, "answers").stop_token))

    def see(self, number: int, example: Example, row: Encoded | EncodedPair) -> None:
        """Look at one row, cut as it would be trained."""
        parts = self.see_words(number, example)
        self._template.see(number, parts)
        if row.cut and self._drops:
            return
        if isinstance(row, EncodedPair):
            self._tokens.see_pair(number, parts, row)
        else:
            self._tokens.see(number, parts, row)

    def refuse(self, faults: RowFaults) -> None:
        """Take in the rows that could not be read."""
        if faults.count:
            first = faults.first[0]
            self._rows += faults.count
            rows = [fault.row for fault in faults.first]
            self._book.put("unusable_rows", Rows(first.reason, faults.count, rows))


def lint_rows(
    rows: Iterable[tuple[int, Row]],
    columns: Columns,
    method: Method,
    codec: Codec,
    *,
    model: ModelTokens = _UNKNOWN,
    held_out: HeldOut | None = None,
) -> tuple[Finding, ...]:
    """What a person should know about these rows before training on them, errors first.

    Args:
        rows: Numbered rows, as from ``read_rows`` or ``enumerate(list, 1)``.
        columns: The names that the user gave.
        method: The hyperparameters as planned.
        codec: The tokenizer with its template.
        model: What the model does with its tokens.
        held_out: What is held out, as from ``HeldOut.of``.

    Raises:
        InvalidRequest: The data set cannot be read, or the tokenizer lacks what its rows need.
    """
    reader = RowReader(columns, method.type)
    faults = RowFaults(reader.needed)
    marker = Marker(codec, method.loss_on)
    linter = Linter(codec, method, model=model, held_out=held_out)
    for number, _, example in reader.examples(rows, faults):
        try:
            texts = texts_of(example, marker)
        except DataRefusal as refusal:
            faults.add(number, refusal)
        else:
            tokens = codec.encode([text.text for text in texts])
            linter.see(number, example, encode_texts(texts, tokens, codec, method))
    linter.refuse(faults)
    return linter.findings()
