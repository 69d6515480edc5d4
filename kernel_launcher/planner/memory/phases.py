"""The phases of a training step, each with all that is alive in it, by term."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kernel_launcher.planner.memory.arithmetic import FP32, Attention
from kernel_launcher.planner.memory.head import head_memory
from kernel_launcher.planner.memory.layer import final_norm_kept, forward_alone, layer_memory, without_adapter
from kernel_launcher.planner.memory.spread import Replicated, Sharded
from kernel_launcher.planner.memory.units import Units
from kernel_launcher.planner.workload import STOCHASTIC_BYTES, STOCHASTIC_CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kernel_launcher.planner.memory.layer import LayerMemory
    from kernel_launcher.planner.memory.spread import Spread
    from kernel_launcher.planner.memory.tape import Moment
    from kernel_launcher.planner.shape import ModelShape
    from kernel_launcher.planner.workload import Workload

Term = Literal[
    "weights", "optimizer", "gradients", "reference", "gathered weights", "reduce buffer", "DDP buckets",
    "cast weights", "activations", "working set", "logits and loss", "measured",
]  # fmt: skip
PhaseName = Literal[
    "start of forward", "layer forward", "loss, forward", "reference forward", "loss, backward", "layer backward",
    "end of backward", "optimizer step",
]  # fmt: skip
Terms = dict[Term, float]

TOKEN_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class Phase:
    """One moment of a step, in bytes by term."""

    name: PhaseName
    terms: Terms

    @property
    def total(self) -> float:
        return sum(self.terms.values())


def phases(workload: Workload, shape: ModelShape) -> list[Phase]:
    """Every moment of one training step on one rank that can be its worst."""
    step = _Step(workload, shape)
    last = shape.layers - 1
    return [
        *step.starts(),
        step.layer_forward(),
        step.loss_forward(),
        *(step.reference_forward() if workload.method == "dpo" else ()),
        *step.head_backward(),
        *(step.layer_backward(done) for done in sorted({0, min(1, last), max(0, last - 1), last})),
        *step.ends(),
        step.optimizer_step(),
    ]


class _Step:
    def __init__(self, workload: Workload, shape: ModelShape) -> None:
        self.w, self.s = workload, shape
        self.tokens = workload.tokens
        self.units = Units(workload, shape)
        self.head = head_memory(workload, shape)
        self.spread: Spread = (Sharded if workload.sharded else Replicated)(self.units, self.head)
        self.arithmetic = arithmetic = workload.arithmetic
        self.entry = self.tokens * shape.hidden * arithmetic.residual
        kinds = [(self._attention(None), shape.layers - shape.sliding_layers)]
        kinds += [(self._attention(shape.window), shape.sliding_layers)]
        kinds = [(attention, count) for attention, count in kinds if count]
        self.attentions = [attention for attention, _ in kinds]
        layers = [(layer_memory(shape, arithmetic, attention), count) for attention, count in kinds]
        self.layers = [layer for layer, _ in layers]
        self.worst_backward = self._worst(
            m
            for layer in self.layers
            for m in (layer.backward + layer.recompute if workload.recompute else layer.backward)
        )
        self.layer_kept = sum(self._kept(layer) * count for layer, count in layers) / shape.layers
        self.layer_cast = sum(layer.kept.fixed * count for layer, count in layers) / shape.layers
        self.layers_kept = shape.layers * self.layer_kept
        if workload.lora is not None and not workload.recompute:
            # Nobody wants the gradient of a frozen embedding's output, so the first layer keeps less.
            first = layer_memory(shape, arithmetic, self.attentions[-1], wanted=False)
            self.layers_kept += self._kept(first) - self.layer_kept
        self.shared = self._shared()
        self.norm = final_norm_kept(shape, arithmetic) * self.tokens
        states: Terms = {"reference": self.spread.reference, "DDP buckets": self.units.buckets}
        if not workload.cpu_offload:
            states |= {"weights": self.units.weights, "optimizer": self.units.optimizer}
        self.states = states

    def starts(self) -> Iterator[Phase]:
        for gathered in self.spread.starts():
            yield self._phase(
                "start of forward",
                {
                    "gradients": self.spread.collected(),
                    "gathered weights": gathered,
                    "activations": self.entry + self.shared,
                },
            )

    def layer_forward(self) -> Phase:
        """The last layer's forward pass."""
        below = self.s.layers - 1
        if self.w.recompute:
            moment = self._worst(m for a in self.attentions for m in forward_alone(self.s, self.arithmetic, a))
            # Autocast keeps its copies of weights to the end of forward, whoever needs them.
            kept, named, cast = self.layers_kept, 0.0, self.s.layers * self.layer_cast
        else:
            moment = self._worst(m for layer in self.layers for m in layer.forward)
            # The embedding's output and the layer's input have names.
            kept, named, cast = self.layers_kept - self.layer_kept, 2 * self.entry, below * self.layer_cast
        return self._phase(
            "layer forward",
            {
                "gradients": self.spread.collected(),
                "gathered weights": self.spread.gathered_for_forward(),
                "cast weights": cast + moment.kept.fixed,
                "activations": kept + moment.kept.per_token * self.tokens + self.shared,
                "working set": moment.moving.at(self.tokens) + named,
            },
        )

    def loss_forward(self) -> Phase:
        return self._phase(
            "loss, forward",
            {
                "gradients": self.spread.collected(),
                "gathered weights": self.spread.gathered_for_loss(),
                "cast weights": self.s.layers * self.layer_cast,
                "activations": self._all_kept(),
                "logits and loss": self.head.forward,
            },
        )

    def reference_forward(self) -> Iterator[Phase]:
        """The reference, or the policy without its adapter, over the same rows and without gradients."""
        plain = without_adapter(self.arithmetic)
        moment = self._worst(m for a in self.attentions for m in forward_alone(self.s, plain, a))
        outside, layers = self.spread.reference_outside, self.spread.gathered_again
        in_layers = moment.total.at(self.tokens) + 2 * self.entry
        # The buffer of a gathering is let go with the copy-out of the next one.
        for reference, again, working in (
            (2 * outside, layers, 0.0),
            (outside, layers, in_layers),
            (outside, layers / 2 if outside else layers, self.head.forward),
        ):
            yield self._phase(
                "reference forward",
                {
                    "gradients": self.spread.collected(),
                    "reference": self.spread.reference + reference,
                    "gathered weights": self.spread.gathered_between + again,
                    "cast weights": self.s.layers * self.layer_cast,
                    "activations": self._all_kept(),
                    "logits and loss": self.head.kept,
                    "working set": working,
                },
            )

    def head_backward(self) -> Iterator[Phase]:
        terms: Terms = {
            "gradients": self.spread.collected(),
            "cast weights": 0 if self.w.recompute else self.s.layers * self.layer_cast,
            "activations": self._all_kept(),
        }
        loss: Terms = {
            "gathered weights": self.spread.gathered_for_loss_backward(),
            "logits and loss": self.head.loss_backward,
        }
        yield self._phase("loss, backward", terms | loss)
        head: Terms = {"gathered weights": self.spread.gathered_for_head(), "logits and loss": self.head.backward}
        yield self._phase("loss, backward", terms | head)
        if reduce := self.spread.head_reduce():
            gradients, gathered, reducing = reduce
            reduced: Terms = {
                "gradients": gradients,
                "gathered weights": gathered,
                "reduce buffer": reducing,
                "activations": self.layers_kept + self.shared,
                "working set": self.entry,
            }
            yield self._phase("loss, backward", terms | reduced)

    def layer_backward(self, done: int) -> Phase:
        """The worst moment of the next layer's backward pass, ``done`` layers having had theirs."""
        below, moment = self.s.layers - done - 1, self.worst_backward
        own = self.entry if self.w.recompute or any(layer.keeps_input for layer in self.layers) else 0.0
        return self._phase(
            "layer backward",
            {
                "gradients": self.spread.gradients(done) + self._new_gradients(moment),
                "gathered weights": self.spread.gathered_for_layer(done),
                "reduce buffer": self.spread.reducing(done),
                "cast weights": (0 if self.w.recompute else below * self.layer_cast) + moment.kept.fixed,
                "activations": below * self.layer_kept + own + moment.kept.per_token * self.tokens + self.shared,
                "working set": moment.moving.at(self.tokens),
            },
        )

    def ends(self) -> Iterator[Phase]:
        for gradients, gathered, reducing in self.spread.ends():
            yield self._phase(
                "end of backward",
                {
                    "gradients": gradients,
                    "gathered weights": gathered,
                    "reduce buffer": reducing,
                    "working set": self.entry + self.shared,
                },
            )

    def optimizer_step(self) -> Phase:
        if self.w.cpu_offload:
            return self._phase("optimizer step", {})
        return self._phase(
            "optimizer step",
            {"gradients": self.units.gradients, "working set": self._optimizer_temporaries()},
        )

    def _optimizer_temporaries(self) -> float:
        """What AdamW needs for a moment (measured): torch's foreach one lists as large as the weights, fused none."""
        if self.w.optimizer == "foreach":
            return self.units.trained_share * self.units.formats.stored
        if self.w.optimizer == "stochastic":
            return STOCHASTIC_BYTES * min(STOCHASTIC_CHUNK[self.w.device], self.units.largest_share)
        return 0.0

    def _phase(self, name: PhaseName, terms: Terms) -> Phase:
        return Phase(name, {term: size for term, size in (self.states | terms).items() if size})

    def _shared(self) -> float:
        """What all layers share: masks (a byte an entry), cosines and sines, token ids and labels."""
        w, s = self.w, self.s
        masks = sum(self.tokens * w.length for attention in set(self.attentions) if attention.kernel == "masked")
        turns = 2 * s.head_dim * s.rotary_share * self.arithmetic.residual * w.length * len(self.attentions)
        return masks + turns + 2 * TOKEN_ID_BYTES * self.tokens

    def _all_kept(self) -> float:
        return self.layers_kept + self.norm + self.shared

    def _kept(self, layer: LayerMemory) -> float:
        if self.w.recompute:
            return self.entry
        return layer.kept.per_token * self.tokens + (self.entry if layer.keeps_input else 0)

    def _attention(self, window: int | None) -> Attention:
        w, s = self.w, self.s
        # A window shorter than the rows cannot be said without a mask.
        if w.masks or (window is not None and w.length >= window):
            return Attention("masked", w.length)
        # CUDA's flash attention has no fp32 and its memory-efficient one no groups (read in cuda/sdp_utils.cpp).
        fp32 = self.arithmetic.weights == FP32 and not w.autocast
        if w.device == "cuda" and fp32 and s.heads != s.kv_heads:
            return Attention("math", w.length)
        return Attention("causal")

    def _worst(self, moments: Iterable[Moment]) -> Moment:
        return max(moments, key=self._size)

    def _size(self, moment: Moment) -> float:
        return self._new_gradients(moment) + moment.kept.at(self.tokens) + moment.moving.at(self.tokens)

    def _new_gradients(self, moment: Moment) -> float:
        """A layer's own gradients; where they are added to earlier ones weight by weight, the largest one."""
        if not self.units.merges:
            return moment.gradients
        return min(moment.gradients, self.units.largest_gradient)
