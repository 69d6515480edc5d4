"""Several rows in one sequence, best fit first, so that little of it is padding. A row is never split."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random


def bins(lengths: Sequence[int], capacity: int, random: Random) -> list[list[int]]:
    """Which rows share a sequence: best fit decreasing.

    The longest rows go first, each into the sequence that it leaves the least room in.

    Args:
        lengths: Tokens of each row, from 1 to ``capacity``.
        capacity: Tokens a sequence at most.
        random: Decides among rows of one length; so rows that share a sequence are no neighbours in the file.

    Returns:
        The indices into ``lengths`` of each sequence's rows.
    """
    order = list(range(len(lengths)))
    random.shuffle(order)
    order.sort(key=lengths.__getitem__, reverse=True)
    packed: list[list[int]] = []
    with_room: dict[int, list[int]] = {}  # by tokens that are free
    rooms: list[int] = []  # its keys, ascending
    for row in order:
        length = lengths[row]
        at = bisect_left(rooms, length)
        if at == len(rooms):
            number, room = len(packed), capacity
            packed.append([])
        else:
            room = rooms[at]
            number = with_room[room].pop()
            if not with_room[room]:
                del with_room[room], rooms[at]
        packed[number].append(row)
        left = room - length
        if left in with_room:
            with_room[left].append(number)
        elif left:
            with_room[left] = [number]
            insort(rooms, left)
    return packed
