"""Lengths, the padding that they cost, and which rows share a sequence."""

from __future__ import annotations

from itertools import combinations
from math import ceil
from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_launcher.data.training.lengths import Lengths, padding_share
from kernel_launcher.data.training.pack import bins

rows = st.lists(st.integers(1, 30), min_size=1, max_size=9)


def counted(numbers):
    lengths = Lengths()
    for number in numbers:
        lengths.add(number)
    return lengths


@given(rows, st.sampled_from([1, 50, 95, 100]))
def test_a_percentile_is_a_length_that_so_many_rows_do_not_exceed(numbers, percent):
    """The nearest rank, and exact: 95 % of 20 rows are 19 of them."""
    expected = sorted(numbers)[ceil(percent * len(numbers) / 100) - 1]
    assert expected == counted(numbers).percentile(percent)
    assert max(numbers) == counted(numbers).longest


@given(rows, st.integers(1, 12))
def test_the_padding_share_is_that_of_all_batches_that_can_be_drawn(numbers, batch):
    """Against brute force over every combination of rows."""
    drawn = list(combinations(numbers, min(batch, len(numbers))))
    computed = mean(max(some) for some in drawn) * len(numbers)
    expected = 1 - sum(numbers) / computed
    assert expected == pytest.approx(padding_share(counted(numbers), sum(numbers), batch))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=7), st.integers(1, 4))
def test_pairs_are_padded_together(pairs, batch):
    """Both sides of all pairs of a micro-batch are filled up to the longest of them."""
    drawn = list(combinations(pairs, min(batch, len(pairs))))
    computed = mean(max(map(max, some)) for some in drawn) * 2 * len(pairs)
    tokens = sum(map(sum, pairs))
    found = padding_share(counted(map(max, pairs)), tokens, batch, sequences=2)
    assert 1 - tokens / computed == pytest.approx(found)


@given(st.lists(st.integers(1, 600), min_size=1, max_size=200))
def test_rows_one_by_one_have_no_padding(numbers):
    """Nor a little less than none."""
    assert "0%" == f"{padding_share(counted(numbers), sum(numbers), 1):.0%}"


def test_of_no_rows_nothing_is_padding():
    assert (0, 0, 0.0) == (Lengths().longest, Lengths().percentile(50), padding_share(Lengths(), 0, 4))


@given(st.lists(st.integers(1, 64), max_size=80), st.integers(0, 5))
def test_every_row_is_in_one_sequence_and_none_is_too_long(lengths, seed):
    packed = bins(lengths, 64, Random(seed))
    assert list(range(len(lengths))) == sorted(row for members in packed for row in members)
    assert all(members for members in packed)
    assert all(sum(lengths[row] for row in members) <= 64 for members in packed)
    assert packed == bins(lengths, 64, Random(seed))


@given(st.lists(st.integers(1, 64), min_size=1, max_size=80))
def test_no_two_sequences_would_fit_into_one(lengths):
    """As for every packing that opens a sequence only where no open one has room."""
    filled = sorted(sum(lengths[row] for row in members) for members in bins(lengths, 64, Random(0)))
    assert len(filled) == 1 or filled[0] + filled[1] > 64


def test_the_best_fit_is_taken():
    """A row goes where it leaves the least room."""
    packed = bins([60, 50, 14, 4], 64, Random(0))
    assert [[0, 3], [1, 2]] == packed
