"""What stands in more than one row, told from hashes: 32 bytes a row, or 48 of a pair, whatever they say."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_launcher.data.lint.finding import Rows
from kernel_launcher.data.lint.parts import parts_of
from kernel_launcher.data.rows.examples import Preference
from kernel_launcher.data.rows.faults import SHOWN_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernel_launcher.data.lint.finding import Book
    from kernel_launcher.data.lint.parts import Parts
    from kernel_launcher.data.rows.examples import Example

# An answer of a word or two is a label: of two of them one may well stand in half of the rows.
_LABEL_LENGTH = 20
_LABEL_SHARE, _ANSWER_SHARE = 0.5, 0.1
_LEAST_SAME = 10


class HeldOut(NamedTuple):
    """What is held out, as hashes."""

    rows: frozenset[int]
    prompts: frozenset[int]

    @classmethod
    def of(cls, examples: Iterable[Example]) -> HeldOut:
        """The hashes of held-out examples; 64 bytes or so each."""
        rows, prompts = set(), set()
        for example in examples:
            parts = parts_of(example)
            rows.add(_row_hash(example, parts))
            if parts.prompt:
                prompts.add(hash(parts.prompt))
        return cls(frozenset(rows), frozenset(prompts))


class RepeatFindings:
    """Remembers the hashes of each row.

    Args:
        book: Where findings go.
        held_out: What is held out, if that is known.
    """

    def __init__(self, book: Book, held_out: HeldOut | None = None) -> None:
        self._book = book
        self._held_out = held_out
        self._rows = _Hashes()
        self._swapped = _Hashes()
        self._labels = _Hashes()
        self._answers = _Hashes()

    def see(self, number: int, example: Example, parts: Parts) -> None:
        """Look at one row."""
        row = _row_hash(example, parts)
        self._rows.add(number, row)
        if parts.answers:
            answer = parts.answers[0 if isinstance(example, Preference) else -1]
            (self._labels if len(answer) < _LABEL_LENGTH else self._answers).add(number, hash(answer))
        if isinstance(example, Preference) and example.chosen != example.rejected:
            self._swapped.add(number, hash((example.prompt, example.rejected, example.chosen)))
        if self._held_out:
            if row in self._held_out.rows:
                self._book.add("heldout_overlap", number)
            elif hash(parts.prompt) in self._held_out.prompts:
                self._book.add("heldout_prompts", number)

    def finish(self) -> None:
        """Say what only all rows together tell."""
        count = len(self._rows)
        found = {
            "duplicated_rows": self._rows.repeated(),
            "swapped_pairs": self._swapped.among(self._rows),
        }
        for hashes, share in ((self._labels, _LABEL_SHARE), (self._answers, _ANSWER_SHARE)):
            most = hashes.most_frequent()
            if most.count >= max(_LEAST_SAME, share * count + 1):
                found["identical_answers"] = most
        for code, rows in found.items():
            if rows.count:
                self._book.put(code, rows)


class _Hashes:
    """A hash of each row, and the row's number."""

    def __init__(self) -> None:
        self._hashes = array("q")
        self._numbers = array("q")

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, number: int, value: int) -> None:
        self._hashes.append(value)
        self._numbers.append(number)

    def repeated(self) -> Rows:
        """The rows whose hash an earlier one has."""
        import pyarrow.compute as pc

        if len(self) < 2:
            return Rows()
        hashes = _arrow(self._hashes)
        order = pc.array_sort_indices(hashes)  # a stable sort: of equal ones the first comes first
        ascending = hashes.take(order)
        return self._at(order[1:].filter(pc.equal(ascending[1:], ascending[:-1])))

    def among(self, others: _Hashes) -> Rows:
        """The rows whose hash one of the others has."""
        import pyarrow.compute as pc

        return self._where(pc.is_in(_arrow(self._hashes), value_set=_arrow(others._hashes)))

    def most_frequent(self) -> Rows:
        """The rows with the most frequent hash."""
        import pyarrow.compute as pc

        if not len(self):
            return Rows()
        hashes = _arrow(self._hashes)
        return self._where(pc.equal(hashes, pc.mode(hashes)[0]["mode"]))

    def _where(self, mask: Any) -> Rows:
        import pyarrow.compute as pc

        return self._at(pc.indices_nonzero(mask))

    def _at(self, places: Any) -> Rows:
        import pyarrow.compute as pc

        numbers = _arrow(self._numbers).take(places)
        first = numbers.take(pc.select_k_unstable(numbers, SHOWN_ROWS, [("", "ascending")])).to_pylist()
        return Rows(count=len(numbers), first=first)


def _arrow(values: array[int]) -> Any:
    """The same numbers as an Arrow array, without a copy."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _row_hash(example: Example, parts: Parts) -> int:
    if isinstance(example, Preference):
        return hash((example.prompt, example.chosen, example.rejected))
    return hash((parts.contents, parts.roles))
