"""A symbolic autograd tape: what a forward pass holds, and what its nodes keep for backward.

A tensor lives as long as a name or a node refers to it, here as in torch: Python frees it with its last reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Size(NamedTuple):
    """Bytes as a line over the tokens of a micro-batch: ``fixed + per_token x tokens``."""

    fixed: float = 0.0
    per_token: float = 0.0

    def at(self, tokens: int) -> float:
        """Bytes for so many tokens."""
        return self.fixed + self.per_token * tokens

    def __add__(self, other: Size) -> Size:  # type: ignore[override]
        return Size(self.fixed + other.fixed, self.per_token + other.per_token)

    def __sub__(self, other: Size) -> Size:
        return Size(self.fixed - other.fixed, self.per_token - other.per_token)


NOTHING = Size()


@dataclass(frozen=True, slots=True)
class Moment:
    """What is alive at one moment of a layer's forward or backward pass.

    Attributes:
        gradients: Weight gradients made so far.
        kept: What forward saved and backward has not used yet.
        moving: Everything else: values and gradients of values on their way, and what a kernel needs beside them.
    """

    gradients: float
    kept: Size
    moving: Size

    @property
    def total(self) -> Size:
        kept, moving = self.kept, self.moving
        return Size(self.gradients + kept.fixed + moving.fixed, kept.per_token + moving.per_token)


class Storage:
    """Memory of a tensor and its views, counted by its tape as long as it lives.

    Attributes:
        size: Bytes.
        counted: Whether it counts; the input of a layer is counted by whoever keeps it.
        savers: How many nodes saved it.
    """

    __slots__ = ("_tape", "counted", "savers", "size")

    def __init__(self, tape: Tape, size: Size, *, counted: bool = True) -> None:
        self.size, self.counted, self.savers = size, counted, 0
        self._tape = tape
        if counted:
            tape.alive += size

    def __del__(self) -> None:
        if self.counted:
            self._tape.alive -= self.size


@dataclass(eq=False, slots=True)
class Tensor:
    """A value on the tape.

    Attributes:
        size: Bytes.
        width: Bytes of each element.
        storage: Its memory.
        node: What made it; None for an input, and where no gradient is wanted.
        wanted: Whether its gradient is wanted.
    """

    size: Size
    width: int
    storage: Storage
    node: Node | None = None
    wanted: bool = True

    @property
    def count(self) -> float:
        """Elements per token."""
        return self.size.per_token / self.width


@dataclass(eq=False, slots=True)
class Node:
    """One step of the backward pass.

    Attributes:
        edges: For each input that wants a gradient: its node, and the size of a new one (None: the same passes on).
        saved: What it keeps for backward.
        gradient: Bytes of weight gradients that it makes and leaves behind.
        scratch: What its kernel needs beside inputs and outputs.
        joins: It has several outputs, whose gradients it takes side by side instead of their sum.
        shares: The gradients that it makes are views.
    """

    edges: list[tuple[Node | None, Size | None]]
    saved: list[Storage]
    gradient: float = 0.0
    scratch: Size = NOTHING
    joins: bool = False
    shares: bool = False


class Tape:
    """Records the nodes of one layer.

    Args:
        saves: Whether nodes keep what backward needs: not without gradients, and not in the forward pass of a layer
            that is recomputed.

    Attributes:
        alive: Bytes of everything that is referred to.
        kept: Bytes that nodes saved.
        forward: The moments of the forward pass.
        last_save: How many of them there were when the last tensor was saved.
    """

    def __init__(self, *, saves: bool = True) -> None:
        self.saves = saves
        self.nodes: list[Node] = []
        self.alive = NOTHING
        self.kept = NOTHING
        self.forward: list[Moment] = []
        self.last_save = 0

    def input(self, count: float, width: int, *, wanted: bool = True) -> Tensor:
        """The layer's input, which is counted by whoever keeps it, not here."""
        size = Size(per_token=count * width)
        return Tensor(size, width, Storage(self, size, counted=False), wanted=wanted)

    def apply(
        self,
        inputs: Sequence[Tensor],
        count: float,
        width: int,
        *,
        saves: Iterable[Storage] = (),
        saves_output: bool = False,
        passes: bool = False,
        view: bool = False,
        scratch: Size = NOTHING,
        gradient: float = 0.0,
        joins: bool = False,
        shares: bool = False,
    ) -> Tensor:
        """Record a node and give its output.

        Args:
            inputs: Values that it makes gradients for, where they are wanted.
            count: Elements per token of the output.
            width: Bytes of each.
            saves: What the node keeps for backward.
            saves_output: It keeps its output, too.
            passes: The incoming gradient passes on as it is, where it has the input's width.
            view: The output shares the first input's memory.
            scratch: What the backward kernel needs beside.
            gradient: Bytes of weight gradients.
            joins: The gradients of several outputs come side by side.
            shares: The gradients that it makes are views of what its kernel made.
        """
        size = Size(per_token=count * width)
        storage = inputs[0].storage if view else Storage(self, size)
        edges = [(x.node, None if passes and x.width == width else x.size) for x in inputs if x.wanted]
        node = None
        if edges or gradient:
            saved = [*saves, storage] if saves_output else list(saves)
            node = self._record(Node(edges, saved if self.saves else [], gradient, scratch, joins, shares))
        self.forward.append(Moment(0.0, self.kept, self.alive - self.kept))
        if node is not None and node.saved:
            # Inputs are saved before the kernel runs, its output after.
            self.last_save = len(self.forward) - (0 if saves_output else 1)
        return Tensor(size, width, storage, node, wanted=node is not None)

    def weight_copy(self, elements: float, width: int, gradient: float) -> Tensor:
        """A copy of a weight in another format; its gradient becomes ``gradient`` bytes."""
        size = Size(fixed=elements * width)
        node = self._record(Node([], [], gradient)) if gradient else None
        return Tensor(size, width, Storage(self, size), node, wanted=node is not None)

    def memory(self, per_token: float) -> Storage:
        """What a kernel keeps beside its inputs and outputs, in bytes per token."""
        return Storage(self, Size(per_token=per_token))

    def _record(self, node: Node) -> Node:
        for storage in node.saved:
            if storage.savers == 0 and storage.counted:
                self.kept += storage.size
            storage.savers += 1
        self.nodes.append(node)
        return node
