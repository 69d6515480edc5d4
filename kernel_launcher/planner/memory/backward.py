"""The backward pass over a tape: what is alive at each of its nodes.

The rules are those of torch's engine (``csrc/autograd/engine.cpp``, ``input_buffer.cpp``): nodes run in the reverse
of their making; a node's incoming gradient and the tensors that it saved are freed after it ran; gradients that meet
are added, in place where nothing else refers to the first one's memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel_launcher.planner.memory.tape import NOTHING, Moment

if TYPE_CHECKING:
    from kernel_launcher.planner.memory.tape import Node, Size, Tape, Tensor


@dataclass(frozen=True, slots=True)
class Backward:
    """A layer's backward pass.

    Attributes:
        moments: All of them.
        before_saved: Gradients on their way when a saved tensor is needed first.
    """

    moments: list[Moment]
    before_saved: Size


def backward(tape: Tape, output: Tensor, *, adds_in_place: bool) -> Backward:
    """The backward pass from the gradient of ``output`` to that of the input; uses up the tape.

    Args:
        tape: A recorded forward pass.
        output: Its result.
        adds_in_place: Under a dispatch mode (torch's tracker is one) nothing is ever added in place.
    """
    walk = _Walk(tape, output, adds_in_place=adds_in_place)
    return Backward(walk.moments, walk.before_saved)


@dataclass(eq=False, slots=True)
class Gradient:
    """A gradient on its way.

    Attributes:
        size: Bytes.
        shared: Its memory is another tensor's, too, so that nothing is added to it in place.
        holders: How many places refer to it.
    """

    size: Size
    shared: bool = False
    holders: int = 0


class _Walk:
    def __init__(self, tape: Tape, output: Tensor, *, adds_in_place: bool) -> None:
        self.in_place = adds_in_place
        self.kept = tape.kept
        self.gradients = 0.0
        self.moving = NOTHING
        self.waiting: dict[Node | None, list[Gradient]] = {}
        self.moments: list[Moment] = []
        self.before_saved: Size = NOTHING
        self._arrive(output.node, self._new(output.size))
        for node in reversed(tape.nodes):
            self._run(node)

    def _run(self, node: Node) -> None:
        if node.saved and self.before_saved == NOTHING:
            self.before_saved = self.moving
        incoming = self.waiting.pop(node)
        sent = [
            (target, incoming[0] if size is None else self._new(size, shared=node.shares))
            for target, size in node.edges
        ]
        self.gradients += node.gradient
        self._note(node.scratch)
        for _, gradient in sent:
            gradient.holders += 1
        for gradient in incoming:
            self._drop(gradient)
        for storage in node.saved:
            storage.savers -= 1
            if storage.savers == 0 and storage.counted:
                self.kept -= storage.size
        for target, gradient in sent:
            gradient.holders -= 1
            self._arrive(target, gradient)

    def _arrive(self, target: Node | None, gradient: Gradient) -> None:
        held = self.waiting.setdefault(target, [])
        gradient.holders += 1
        if not held or (target is not None and target.joins):
            held.append(gradient)
        elif self.in_place and held[0].holders == 1 and not held[0].shared:
            self._drop(gradient)
        else:
            total = self._new(held[0].size)
            total.holders = 1
            self._note(NOTHING)
            self._drop(held[0])
            self._drop(gradient)
            held[0] = total

    def _new(self, size: Size, *, shared: bool = False) -> Gradient:
        self.moving += size
        return Gradient(size, shared)

    def _drop(self, gradient: Gradient) -> None:
        gradient.holders -= 1
        if gradient.holders == 0:
            self.moving -= gradient.size

    def _note(self, scratch: Size) -> None:
        self.moments.append(Moment(self.gradients, self.kept, self.moving + scratch))
