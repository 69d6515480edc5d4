"""How weights and gradients are spread over the ranks: by DDP, or by FSDP2 with its order of events.

Read in torch 2.13 (``fsdp/_fully_shard/_fsdp_param_group.py``) and checked with torch's tracker: in forward the
buffer of an all-gather lives until the next one is copied out; in backward the layer below is prefetched, and the
input of a reduce-scatter lives until the next one starts. What is outside of the layers is one unit, or two ("split"
here) where accelerate 1.15 wraps a model whose head is not its embedding: the embedding, and the last norm with the
head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_launcher.planner.memory.head import HeadMemory
    from kernel_launcher.planner.memory.units import Units


class Spread(Protocol):
    """Bytes that depend on how a model is spread; ``done`` counts the layers whose backward pass is over.

    Attributes:
        reference: What a rank always holds of the reference model.
        reference_outside: What its forward pass gathers of it beside the layers.
        gathered_between: What is gathered between forward and backward.
        gathered_again: What a forward pass without gradients gathers of a layer.
    """

    reference: float
    reference_outside: float
    gathered_between: float
    gathered_again: float

    def starts(self) -> Iterator[float]:
        """What is gathered at the moments of the start of forward."""
        ...

    def gathered_for_forward(self) -> float:
        """What is gathered in the last layer's forward."""
        ...

    def gathered_for_loss(self) -> float:
        """What is gathered while the loss is computed."""
        ...

    def gathered_for_loss_backward(self) -> float:
        """What is gathered while the loss's gradient is on its way to the head."""
        ...

    def gathered_for_head(self) -> float:
        """What is gathered in the head's backward."""
        ...

    def gathered_for_layer(self, done: int) -> float:
        """What is gathered in the next layer's backward."""
        ...

    def collected(self) -> float:
        """Gradients of earlier micro-batches."""
        ...

    def gradients(self, done: int) -> float:
        """Gradients that are there before the next layer's backward makes its own."""
        ...

    def reducing(self, done: int) -> float:
        """Input of the reduce-scatter under way."""
        ...

    def head_reduce(self) -> tuple[float, float, float] | None:
        """When the head's gradient is reduced by itself: gradients, what is gathered, what is being reduced."""
        ...

    def ends(self) -> Iterator[tuple[float, float, float]]:
        """The same at the moments after the last layer."""
        ...


class Replicated:
    """DDP: everything on every rank."""

    reference_outside = 0.0
    gathered_between = 0.0
    gathered_again = 0.0

    def __init__(self, units: Units, head: HeadMemory) -> None:
        self.u, self.head = units, head
        self.reference = units.reference

    def starts(self) -> Iterator[float]:
        yield from ()

    def gathered_for_forward(self) -> float:
        return 0.0

    def gathered_for_loss(self) -> float:
        return 0.0

    def gathered_for_loss_backward(self) -> float:
        return 0.0

    def gathered_for_head(self) -> float:
        return 0.0

    def gathered_for_layer(self, done: int) -> float:
        return 0.0

    def collected(self) -> float:
        return self.u.gradients if self.u.merges else 0.0

    def gradients(self, done: int) -> float:
        if self.u.merges:
            return self.u.gradients + _waiting(self.u, self.head)
        return done * self.u.layer_gradient + self.head.gradient

    def reducing(self, done: int) -> float:
        return 0.0

    def head_reduce(self) -> None:
        return None

    def ends(self) -> Iterator[tuple[float, float, float]]:
        yield self.gradients(self.u.shape.layers) + _embedding_gradients(self.u, self.head), 0.0, 0.0


class Sharded:
    """FSDP2, with weights gathered for forward and backward each (stage 3) or once for both (stage 2)."""

    def __init__(self, units: Units, head: HeadMemory) -> None:
        self.u, self.head = units, head
        w, s = units.workload, units.shape
        self.layers, self.layer = s.layers, units.layer_gathered
        # Reduced gradients go to the host as soon as they are there.
        self.reduced_share = 0.0 if w.cpu_offload else units.formats.gradient / w.shards
        self.reshards = w.zero_stage == 3
        self.split = w.units == "accelerate" and not s.tied
        self.outside = units.outside_gathered(s.root_params)
        self.embedding = units.outside_gathered(s.embedding_params)
        self.tail = self.outside - self.embedding
        # Trained parameters that are reduced with the head, before the layers; the others outside of them come last.
        self.tail_trained = units.outside_trained - s.embedding_params if self.split and units.outside_trained else 0
        # Without a backward pass nothing else lets go of what was gathered: it is resharded at any stage.
        self.reference = 0.0 if w.cpu_offload else units.reference / w.shards
        self.reference_outside = self.outside if units.reference else 0.0
        self.gathered_again = 2 * self.layer if self.reshards or units.reference else 0.0
        self.gathered_between = (self.tail if self.split else self.outside) + (
            0.0 if self.reshards else self.layers * self.layer + (self.embedding if self.split else 0)
        )

    def starts(self) -> Iterator[float]:
        # The buffer before is let go only after the copy-out: a local name holds it.
        first = self.embedding if self.split else self.outside
        yield 2 * first
        stays = 0.0 if self.split and self.reshards else first
        yield stays + first + 2 * self.layer
        if self.reshards:
            yield stays + 3 * self.layer
        if self.split:
            yield self.gathered_between + self.tail + self.layer

    def gathered_for_forward(self) -> float:
        if self.reshards:
            return 2 * self.layer + (0.0 if self.split else self.outside)
        return (self.layers + 1) * self.layer + (self.embedding if self.split else self.outside)

    def gathered_for_loss(self) -> float:
        return self.gathered_between + (self.tail if self.split else self.layer)

    def gathered_for_loss_backward(self) -> float:
        # A unit is called for when a gradient reaches its output: the root's is the loss, accelerate's the logits.
        return self.gathered_for_head() if self.u.workload.units == "root" else self.gathered_between

    def gathered_for_head(self) -> float:
        # A unit that is called for calls for the one below: the last layer.
        return self.gathered_between + (self.layer if self.reshards else 0)

    def gathered_for_layer(self, done: int) -> float:
        left = self.layers - done
        outside = 0.0 if self.split else self.outside
        if not self.reshards:
            return left * self.layer + outside + (self.embedding if self.split else 0)
        below = self.layer if left > 1 else self.embedding if self.split else 0
        return self.layer + below + outside

    def collected(self) -> float:
        u = self.u
        if u.workload.accumulation_steps == 1:
            return 0.0
        return u.trained * (self.reduced_share if u.workload.sync_each_batch else u.formats.reduced)

    def gradients(self, done: int) -> float:
        u = self.u
        reduced = (done * u.layer_trained + self.tail_trained) * self.reduced_share
        waiting = 0.0 if self.split else _waiting(u, self.head)
        if u.workload.accumulation_steps == 1:
            return reduced + waiting
        if u.workload.sync_each_batch:
            return self.collected() + waiting
        left = u.trained - self.tail_trained - done * u.layer_trained
        return left * u.formats.reduced + reduced + waiting

    def reducing(self, done: int) -> float:
        return self.u.layer_reduced if done else self.tail_trained * self.u.formats.reduced

    def head_reduce(self) -> tuple[float, float, float] | None:
        if not self.tail_trained:
            return None
        reduced = self.tail_trained * self.u.formats.reduced
        # Gradients of earlier micro-batches take in the new ones before they are reduced.
        new = 0.0 if self.collected() else self.head.gradient
        return self.collected() + new, self.gathered_for_head() - self.tail, reduced

    def ends(self) -> Iterator[tuple[float, float, float]]:
        u = self.u
        done = self.gradients(self.layers)
        if not self.split:
            yield done + _embedding_gradients(u, self.head), self.outside, u.layer_reduced
            yield done + u.outside_trained * u.formats.computed - self.head.gradient, 0.0, self._last_reduced()
            return
        # The embedding is gathered for its backward, which does not need it.
        yield done, (2 if self.reshards else 1) * self.embedding, u.layer_reduced
        yield done + _embedding_gradients(u, self.head), self.embedding, u.layer_reduced
        yield done + _embedding_gradients(u, self.head), 0.0, self._last_reduced()

    def _last_reduced(self) -> float:
        return (self.u.outside_trained - self.tail_trained) * self.u.formats.reduced


def _waiting(units: Units, head: HeadMemory) -> float:
    """The head's gradient until the end of backward: a tied one waits for the embedding's, an untied one is added."""
    return head.gradient if units.shape.tied or not units.merges else 0.0


def _embedding_gradients(units: Units, head: HeadMemory) -> float:
    """What the embedding's backward adds to the gradients: its own, and a sum with the head's where they are tied."""
    if units.workload.lora is not None:
        return 0.0
    own = float(units.shape.embedding_params * units.formats.computed)
    sums = units.shape.tied and (head.shares_gradient or units.workload.tracked)
    return 2 * own if sums else own
