"""How long rows are, and what padding that costs: from a count of each length, whatever the number of rows."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Lengths:
    """Counts lengths in tokens. All that is told of them is exact."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, length: int) -> None:
        """Count one more."""
        self._counts[length] += 1

    def __len__(self) -> int:
        return self._counts.total()

    @property
    def longest(self) -> int:
        """The greatest length; 0 of none."""
        return max(self._counts, default=0)

    def percentile(self, percent: int) -> int:
        """The least length that so many percent of them do not exceed; 0 of none."""
        wanted = percent * len(self)
        return next((length for length, at_most in self._at_most() if 100 * at_most >= wanted), 0)

    def above(self, length: int) -> int:
        """How many are greater."""
        return sum(count for each, count in self._counts.items() if each > length)

    def capped(self, length: int) -> Lengths:
        """The same, with ``length`` in the place of all that are greater."""
        capped = Lengths()
        for each, count in self._counts.items():
            capped._counts[min(each, length)] += count
        return capped

    @property
    def total(self) -> int:
        """Their sum."""
        return sum(each * count for each, count in self._counts.items())

    def mean_longest(self, batch: int) -> float:
        """The expected longest of ``batch`` different ones, drawn at random; of all of them if they are fewer.

        It is the sum over x of the chance that some drawn one exceeds x; the chance that none does is that of drawing
        ``batch`` from those of at most x (hypergeometric).
        """
        batch = min(batch, len(self))
        expected, reached, none_longer = 0.0, 0, 0.0
        for length, at_most in self._at_most():
            expected += (length - reached) * (1 - none_longer)
            reached, none_longer = length, _all_from(at_most, len(self), batch)
        return expected

    def _at_most(self) -> Iterator[tuple[int, int]]:
        """Each length, ascending, and how many do not exceed it."""
        lengths = sorted(self._counts)
        return zip(lengths, accumulate(self._counts[length] for length in lengths), strict=True)


def padding_share(widths: Lengths, tokens: int, batch: int, *, sequences: int = 1) -> float:
    """The expected share of padding among the tokens that the model computes, for batches drawn at random.

    Each row of a batch is filled up to the longest one. The last batch of an epoch counts as if it were full.

    Args:
        widths: Of each row its longest sequence, in tokens.
        tokens: Tokens of all rows and sequences.
        batch: Rows of a micro-batch.
        sequences: Sequences a row: 2 for pairs, which are filled up together.
    """
    computed = len(widths) * sequences * widths.mean_longest(batch)
    # What is summed up over the lengths may come out smaller than the tokens by its rounding.
    return max(0.0, 1 - tokens / computed) if computed else 0.0


def _all_from(part: int, whole: int, drawn: int) -> float:
    """The chance that all drawn ones are of a part of the whole."""
    if part < drawn:
        return 0.0
    chance = 1.0
    for taken in range(drawn):
        chance *= (part - taken) / (whole - taken)
    return chance
