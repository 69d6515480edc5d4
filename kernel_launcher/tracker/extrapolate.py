"""From two models with few layers to one with many: between the same events, memory is linear in the layers.

The peak of a whole step is not: with few layers another moment is the worst. So each stretch of a step is extended by
itself: the first layers and the last ones keep their place, and those in between lie in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

_LEAST_EDGE = 2  # what is around a layer differs for the first two and the last two: FSDP2 fetches one ahead


class Stretch(NamedTuple):
    """A part of a step, from one event to the next; ``layer`` is None outside of the layers."""

    phase: str
    layer: int | None = None
    micro_batch: int = 0


class Cuts(NamedTuple):
    """The two sizes to measure.

    Attributes:
        few: Layers of the smaller model.
        more: Layers of the larger one.
        edge: Layers at the end that keep their distance from it.
    """

    few: int
    more: int
    edge: int


def cuts(kinds: Sequence[Hashable]) -> Cuts | None:
    """The sizes from which a model of these kinds of layers can be extended; None if it is as well measured whole."""
    count = len(kinds)
    _, period, start = min(
        (start + period, period, start) for period in range(1, count + 1) for start in [_irregular(kinds, period)]
    )
    edge = max(_LEAST_EDGE, period)
    few = start + 2 * edge + (count - start) % period
    return Cuts(few, few + period, edge) if few + period < count else None


def _irregular(kinds: Sequence[Hashable], period: int) -> int:
    """How many layers stand before those that repeat."""
    breaks = (i + 1 for i in range(len(kinds) - period - 1, -1, -1) if kinds[i] != kinds[i + period])
    return next(breaks, 0)


def extended(few: Mapping[Stretch, int], more: Mapping[Stretch, int], sizes: Cuts, layers: int) -> dict[Stretch, int]:
    """The stretches of a model of so many layers that are at its ends or outside of the layers."""
    times = (layers - sizes.few) / (sizes.more - sizes.few)
    larger = _aligned(more, sizes.more, sizes)
    return {
        stretch: round(size + (larger[stretch] - size) * times)
        for stretch, size in _aligned(few, sizes.few, sizes).items()
    }


def _aligned(peaks: Mapping[Stretch, int], count: int, sizes: Cuts) -> dict[Stretch, int]:
    """The last layers are counted from the end; what is in one of the two models only is left out."""
    found = {}
    for stretch, size in peaks.items():
        place = stretch.layer
        if place is None or place < sizes.few - sizes.edge:
            found[stretch] = size
        elif place >= count - sizes.edge:
            found[stretch._replace(layer=place - count)] = size
    return found
