"""One decoder layer on the tape, written as transformers 5.24 writes its forward pass.

Each function mirrors the module of that name (``models/qwen3``, ``llama``, ``gemma3``, ``olmo2``, ``phi3``,
``integrations/sdpa_attention.py``) and PEFT's LoRA layer (``tuners/lora/layer.py``, 0.21), line by line as far as
memory goes: what is nested there is nested here, so that a temporary dies at the same place. What autograd saves for
each of torch's operators is read in ``derivatives.yaml``. All of it was compared with torch's tracker, operator by
operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kernel_launcher.planner.memory.arithmetic import BF16, FP32
from kernel_launcher.planner.memory.tape import NOTHING, Size, Tensor

if TYPE_CHECKING:
    from kernel_launcher.planner.memory.arithmetic import Adapter, Arithmetic, Attention
    from kernel_launcher.planner.memory.tape import Tape
    from kernel_launcher.planner.shape import ModelShape


class Decoder:
    """Writes a layer on a tape."""

    def __init__(self, tape: Tape, shape: ModelShape, arithmetic: Arithmetic, attention: Attention) -> None:
        self.tape = tape
        self.shape = shape
        self.arithmetic = arithmetic
        self.kernel, self.length = attention.kernel, attention.length

    def decoder_layer(self, x: Tensor) -> Tensor:
        return self.branch(self.branch(x, "attention"), "mlp")

    def branch(self, x: Tensor, name: Literal["attention", "mlp"]) -> Tensor:
        y = self.norm(x) if self.shape.norms != "after" else x
        y = self.attention(y) if name == "attention" else self.mlp(y)
        if self.shape.norms != "before":
            y = self.norm(y)
        return self.add(x, y)

    def attention(self, x: Tensor) -> Tensor:
        shape = self.shape
        if shape.fused:
            qkv = self.linear(x, "qkv_proj")
            q = self.part(qkv, shape.q_width)
            k, v = self.part(qkv, shape.kv_width), self.part(qkv, shape.kv_width)
        else:
            q = self.head_norm(self.contiguous(self.linear(x, "q_proj")), shape.heads)
            k = self.head_norm(self.contiguous(self.linear(x, "k_proj")), shape.kv_heads)
            v = self.linear(x, "v_proj")
            v = self.contiguous(v) if self.repeats else v
        q, k = self.rotate(q), self.rotate(k)
        return self.linear(self.sdpa(q, k, v), "o_proj")

    def mlp(self, x: Tensor) -> Tensor:
        if not self.shape.fused:
            product = self.times(self.activation(self.linear(x, "gate_proj")), self.linear(x, "up_proj"))
            return self.linear(product, "down_proj")
        both = self.linear(x, "gate_up_proj")
        split = self.tape.apply([both], both.count, both.width, view=True, joins=True)
        gate = Tensor(Size(per_token=both.size.per_token / 2), both.width, both.storage, split.node, split.wanted)
        return self.linear(self.times(gate, self.activation(gate)), "down_proj")

    def activation(self, x: Tensor) -> Tensor:
        return self.tape.apply([x], x.count, x.width, saves=[x.storage])

    def times(self, x: Tensor, y: Tensor) -> Tensor:
        return self.tape.apply([x, y], x.count, x.width, saves=[x.storage, y.storage])

    def norm(self, x: Tensor, heads: int = 1) -> Tensor:
        """RMSNorm over rows of ``x.count / heads``; the families differ in where they go back to a narrow format."""
        wide = self.cast(x, FP32)
        variance = self.tape.apply([self.square(wide)], heads, FP32)
        scale = self.tape.apply([variance], heads, FP32, saves_output=True)
        product = Size(per_token=wide.count * FP32)
        saved = [wide.storage, scale.storage]
        wide = self.tape.apply([wide, scale], wide.count, FP32, saves=saved, scratch=product)
        del saved
        if self.shape.norm == "llama":
            return self.times_weight(self.cast(wide, x.width))
        return self.cast(self.times_weight(wide), x.width)

    def square(self, x: Tensor) -> Tensor:
        # Its backward makes two products on the way to its result.
        return self.tape.apply([x], x.count, x.width, saves=[x.storage], scratch=x.size + x.size)

    def times_weight(self, y: Tensor) -> Tensor:
        """A norm's weight; with an fp32 weight the product is fp32."""
        width = max(y.width, self.arithmetic.weights)
        product = Size(per_token=y.count * width)
        trains = self.arithmetic.trains_base
        scratch = (product if trains else NOTHING) + (product if width != y.width else NOTHING)
        return self.tape.apply([y], y.count, width, saves=[y.storage] if trains else [], scratch=scratch)

    def head_norm(self, x: Tensor, heads: int) -> Tensor:
        if self.shape.head_norm == "none":
            return x
        return self.norm(x, heads if self.shape.head_norm == "each" else 1)

    def linear(self, x: Tensor, name: str) -> Tensor:
        """A linear layer, with its adapter if it has one."""
        inputs, outputs = self.shape.linears[name]
        a = self.arithmetic
        y = self.matmul(x, inputs, outputs, a.weights, trains=a.trains_base, packed=a.four_bit)
        if a.adapter is None or name not in a.adapter.targets:
            return y
        width = y.width
        wide = self.cast(x, a.adapter.width)
        if a.four_bit:
            y = self.copy(y)
        y = self.add(y, self.adapter(wide, a.adapter, inputs, outputs))
        return self.cast(y, width)

    def adapter(self, x: Tensor, adapter: Adapter, inputs: int, outputs: int) -> Tensor:
        def low(x: Tensor) -> Tensor:
            return self.matmul(x, inputs, adapter.rank, adapter.width, trains=True)

        def high(x: Tensor) -> Tensor:
            return self.matmul(x, adapter.rank, outputs, adapter.width, trains=True)

        return self.scaled(high(low(self.dropout(x) if adapter.dropout else x)))

    def scaled(self, x: Tensor) -> Tensor:
        return self.tape.apply([x], x.count, x.width)

    def matmul(
        self, x: Tensor, inputs: int, outputs: int, width: int, *, trains: bool, packed: bool = False
    ) -> Tensor:
        elements = inputs * outputs
        gradient = float(elements * width) if trains else 0.0
        scratch = Size(fixed=elements * BF16) if packed else NOTHING
        if not (self.arithmetic.autocast and FP32 in (width, x.width)):
            saves = [x.storage] if trains else []
            return self.tape.apply(
                [x], outputs, x.width, saves=saves, scratch=scratch, gradient=gradient, shares=True
            )
        weight = self.tape.weight_copy(elements, BF16, gradient) if width == FP32 else None
        narrow = self.cast(x, BF16)
        saves = [narrow.storage] if trains else []
        if weight is None:
            return self.tape.apply(
                [narrow], outputs, BF16, saves=saves, scratch=scratch, gradient=gradient, shares=True
            )
        return self.tape.apply([narrow, weight], outputs, BF16, saves=[*saves, weight.storage], shares=True)

    def dropout(self, x: Tensor) -> Tensor:
        """Dropout keeps its choice: a byte per value on CUDA, the noise itself on a CPU."""
        noise = x.count * (1 if self.arithmetic.device == "cuda" else x.width)
        return self.tape.apply([x], x.count, x.width, saves=[self.tape.memory(noise)])

    def rotate(self, x: Tensor) -> Tensor:
        """Rotary embedding; cosines and sines are shared by all layers and stay out."""
        if self.shape.rotary_share == 1:
            return self.rotate_all(x)
        turning = self.part(x, x.count * self.shape.rotary_share)
        rest = self.part(x, x.count - turning.count)
        return self.tape.apply(
            [self.rotate_all(turning), rest], x.count, max(x.width, self.arithmetic.residual), passes=True
        )

    def rotate_all(self, x: Tensor) -> Tensor:
        return self.add(self.times_shared(x), self.times_shared(self.rotate_half(x)))

    def times_shared(self, x: Tensor) -> Tensor:
        """A product with cosines or sines, which come in the format of the residual stream."""
        width = max(x.width, self.arithmetic.residual)
        product = Size(per_token=x.count * width) if width != x.width else NOTHING
        return self.tape.apply([x], x.count, width, scratch=product)

    def rotate_half(self, x: Tensor) -> Tensor:
        first, second = self.part(x, x.count / 2), self.part(x, x.count / 2)
        negative = self.tape.apply([second], second.count, x.width)
        return self.tape.apply([negative, first], x.count, x.width, passes=True)

    @property
    def repeats(self) -> bool:
        """Whether keys and values are repeated for each query head, for a kernel that wants as many."""
        return self.kernel != "causal" and self.shape.heads != self.shape.kv_heads

    def sdpa(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.kernel == "math":
            return self.sdpa_math(q, k, v)
        shape = self.shape
        if self.repeats:
            k, v = self.repeated(k), self.repeated(v)
        if self.arithmetic.autocast:
            v, k, q = self.cast(v, BF16), self.cast(k, BF16), self.cast(q, BF16)
        statistics = shape.heads * FP32
        saved = [q.storage, k.storage, v.storage, self.tape.memory(statistics)]
        if self.kernel == "masked":
            saved.append(self.tape.memory(self.length * q.width))
        scratch = NOTHING
        if self.arithmetic.device == "cuda":
            # Flash attention sums the gradient of queries in fp32 and makes those of keys and values for each query
            # head (read in ``cuda/flash_attn/flash_api.cpp``, mha_bwd).
            grouped = not self.repeats and shape.heads != shape.kv_heads
            scratch = Size(per_token=shape.q_width * (FP32 + (2 * q.width if grouped else 0)) + statistics)
        mixed = self.tape.apply([q, k, v], shape.q_width, q.width, saves=saved, saves_output=True, scratch=scratch)
        # Queries that were put together of two parts lie head by head, so the output does, and is put in order.
        return mixed if shape.rotary_share == 1 else self.copy(mixed)

    def sdpa_math(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention without a fused kernel: every score of every head."""
        causal = self.tape.memory(self.length * q.width)
        q = self.scaled(q)
        k, v = self.repeated(k), self.repeated(v)
        keys = self.scaled(k)
        count = self.shape.heads * self.length
        scores = self.tape.apply([q, keys], count, q.width, saves=[q.storage, keys.storage])
        scores = self.tape.apply([scores], count, q.width, passes=True)
        scores = self.tape.apply([scores], count, q.width, saves_output=True)
        mixed = self.tape.apply([scores, v], q.count, q.width, saves=[scores.storage, v.storage])
        del causal
        return self.copy(mixed)

    def repeated(self, x: Tensor) -> Tensor:
        return self.tape.apply([x], self.shape.q_width, x.width)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.tape.apply([x, y], x.count, max(x.width, y.width), passes=True)

    def copy(self, x: Tensor) -> Tensor:
        return self.tape.apply([x], x.count, x.width, passes=True)

    def cast(self, x: Tensor, width: int) -> Tensor:
        return x if x.width == width else self.tape.apply([x], x.count, width)

    def contiguous(self, x: Tensor) -> Tensor:
        """A view whose gradient comes back in another order and is copied."""
        return self.tape.apply([x], x.count, x.width, view=True)

    def part(self, x: Tensor, count: float) -> Tensor:
        """A slice; its gradient is as large as the whole."""
        return self.tape.apply([x], count, x.width, view=True)
