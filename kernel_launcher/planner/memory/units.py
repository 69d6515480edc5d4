"""What of a model lies on one GPU, and what is gathered and reduced at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_launcher.planner.shape import ModelShape
    from kernel_launcher.planner.workload import Formats, Workload

# NF4 with double quantisation: half a byte a weight, a byte of scale for each 64, an fp32 for each 256 of those
# (QLoRA, Dettmers et al. 2023).
FOUR_BIT_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)


@dataclass(frozen=True)
class Units:
    """Bytes of the parts of a model in one workload; a unit is what FSDP2 gathers at once.

    "Gathered" is what a unit takes in forward and backward when whole; "trained" counts parameters with a gradient.
    """

    workload: Workload
    shape: ModelShape

    @cached_property
    def layer_trained(self) -> int:
        """Trained parameters of a layer."""
        lora = self.workload.lora
        return self.shape.layer_params if lora is None else self.shape.adapter_params(lora.rank, lora.targets)

    @cached_property
    def outside_trained(self) -> int:
        """Trained parameters outside of the layers."""
        return self.shape.root_params if self.workload.lora is None else 0

    @cached_property
    def trained(self) -> int:
        """Parameters with a gradient."""
        return self.shape.layers * self.layer_trained + self.outside_trained

    @cached_property
    def frozen_bytes(self) -> float:
        """Weights without a gradient, over all GPUs of a shard group."""
        w, s = self.workload, self.shape
        if w.lora is None:
            return 0.0
        linear = s.linear_params * s.layers
        packed = FOUR_BIT_BYTES if w.lora.four_bit else w.base.stored
        return linear * packed + (s.params - linear) * w.base.stored

    @cached_property
    def formats(self) -> Formats:
        """Formats of what is trained."""
        return self.workload.base if self.workload.lora is None else self.workload.adapter

    @cached_property
    def layer_gathered(self) -> float:
        w, s = self.workload, self.shape
        adapter = self.layer_trained * w.adapter.computed if w.lora is not None else 0
        return s.layer_params * w.base.computed + adapter

    @cached_property
    def layer_gradient(self) -> float:
        """A layer's gradients as backward makes them."""
        return self.layer_trained * self.formats.computed

    @cached_property
    def layer_reduced(self) -> float:
        """A layer's gradients as they travel."""
        return self.layer_trained * self.formats.reduced

    def outside_gathered(self, params: int) -> float:
        """Bytes of so many parameters outside of the layers, gathered."""
        return params * self.workload.base.computed

    @cached_property
    def trained_share(self) -> float:
        """Parameters with a gradient that one rank keeps."""
        return self.trained / self.workload.shards

    @cached_property
    def largest_share(self) -> float:
        """What one rank keeps of the largest trained parameter of a full fine-tune."""
        return max(self.shape.embedding_params, *self._layer_weights) / self.workload.shards

    @cached_property
    def weights(self) -> float:
        """Weights that one rank keeps."""
        return (self.trained * self.formats.stored + self.frozen_bytes) / self.workload.shards

    @cached_property
    def optimizer(self) -> float:
        """Moments that one rank keeps."""
        return self.trained_share * self.formats.moments

    @cached_property
    def gradients(self) -> float:
        """Gradients that one rank keeps for the optimizer."""
        return self.trained_share * self.formats.gradient

    @cached_property
    def reference(self) -> float:
        """The whole reference model of a DPO run that trains all weights, in the policy's format."""
        w = self.workload
        return float(self.shape.params * w.base.stored) if w.method == "dpo" and w.lora is None else 0.0

    @cached_property
    def buckets(self) -> float:
        """DDP's buckets: as large as the gradients, as accelerate leaves ``gradient_as_bucket_view`` off."""
        w = self.workload
        wrapped = not w.sharded and w.world_size > 1 and not w.tracked
        return self.gradients if wrapped else 0.0

    @cached_property
    def merges(self) -> bool:
        """Whether a gradient is added to that of earlier micro-batches as soon as it is there."""
        w = self.workload
        if w.accumulation_steps == 1 or (w.sharded and w.sync_each_batch):
            return False
        return not w.sharded or self.formats.computed == self.formats.reduced

    @cached_property
    def largest_gradient(self) -> float:
        """Gradient of a layer's largest weight."""
        return self.formats.computed * max(self._layer_weights)

    @property
    def _layer_weights(self) -> list[int]:
        return [inputs * outputs for inputs, outputs in self.shape.linears.values()]
