"""The memory of one decoder layer, derived once for each kind of layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kernel_launcher.planner.memory.arithmetic import Attention
from kernel_launcher.planner.memory.backward import backward
from kernel_launcher.planner.memory.decoder import Decoder
from kernel_launcher.planner.memory.tape import Tape

if TYPE_CHECKING:
    from kernel_launcher.planner.memory.arithmetic import Arithmetic
    from kernel_launcher.planner.memory.tape import Moment, Size
    from kernel_launcher.planner.shape import ModelShape


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """What one layer holds.

    Attributes:
        kept: What its forward pass leaves for backward, its input aside.
        keeps_input: Whether backward needs the input, too.
        forward: The moments of its forward pass that can be the worst for some number of tokens.
        recompute: Those of its forward pass when it comes again in backward: it starts when backward first needs a
            saved tensor, and stops at the last one that is saved.
        backward: Those of its backward pass.
    """

    kept: Size
    keeps_input: bool
    forward: tuple[Moment, ...]
    recompute: tuple[Moment, ...]
    backward: tuple[Moment, ...]


@lru_cache(maxsize=1024)
def layer_memory(
    shape: ModelShape, arithmetic: Arithmetic, attention: Attention, *, wanted: bool = True
) -> LayerMemory:
    """Memory of a decoder layer.

    Args:
        shape: The model.
        arithmetic: Formats, adapter, kernels.
        attention: The kernel of attention.
        wanted: Whether the gradient of its input is wanted; that of a frozen embedding's output is not.
    """
    tape = Tape()
    entry = tape.input(shape.hidden, arithmetic.residual, wanted=wanted)
    output = Decoder(tape, shape, arithmetic, attention).decoder_layer(entry)
    kept, keeps_input = tape.kept, entry.storage.savers > 0
    back = backward(tape, output, adds_in_place=arithmetic.adds_in_place)
    again = [replace(m, moving=m.moving + back.before_saved) for m in tape.forward[: tape.last_save]]
    return LayerMemory(kept, keeps_input, _worst(tape.forward), _worst(again), _worst(back.moments))


@lru_cache(maxsize=1024)
def forward_alone(shape: ModelShape, arithmetic: Arithmetic, attention: Attention) -> tuple[Moment, ...]:
    """The worst moments of a layer's forward pass that keeps nothing: in inference, and before it is recomputed."""
    tape = Tape(saves=False)
    Decoder(tape, shape, arithmetic, attention).decoder_layer(tape.input(shape.hidden, arithmetic.residual))
    return _worst(tape.forward)


def without_adapter(arithmetic: Arithmetic) -> Arithmetic:
    """The same with the adapter switched off."""
    return replace(arithmetic, adapter=None)


@lru_cache(maxsize=1024)
def final_norm_kept(shape: ModelShape, arithmetic: Arithmetic) -> float:
    """Bytes per token that the model's last norm keeps; its output is the head's."""
    tape = Tape()
    entry = tape.input(shape.hidden, arithmetic.residual)
    Decoder(tape, shape, arithmetic, Attention("causal")).norm(entry)
    return tape.kept.per_token + (entry.size.per_token if entry.storage.savers else 0)


def _worst(moments: list[Moment]) -> tuple[Moment, ...]:
    """Without the moments that hold less than another one for any number of tokens."""
    worst: list[Moment] = []
    most = -1.0
    for total, _, moment in sorted(((m.total[::-1], i, m) for i, m in enumerate(moments)), reverse=True):
        if total[1] > most:
            worst.append(moment)
            most = total[1]
    return tuple(worst)
