"""Number formats of a plan: what is loaded, trained, computed, reduced and saved in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy

if TYPE_CHECKING:
    from kernel_launcher.spec.fields import Method


@dataclass(frozen=True, slots=True)
class Precision:
    """The formats of one plan.

    Attributes:
        loaded: Of the base's weights.
        trained: Of the weights that the optimizer updates, of its moments, and of gradients as they are reduced. An
            adapter's are float32 always: PEFT makes them so, and casts its input to it and its output back.
        computed: Of the base's matrix products.
        mixed: Whether masters are wider than that: torch's autocast under DDP, weights gathered narrower under FSDP2.
        autocast: Which of the two.
        saved: Of the final model. float32 masters are the optimizer's precision, not the model's; they are rounded by
            chance, so that what they have learnt is not rounded away.
    """

    loaded: torch.dtype
    trained: torch.dtype
    computed: torch.dtype
    mixed: bool
    autocast: bool
    saved: torch.dtype

    @classmethod
    def of(cls, method: Method) -> Precision:
        """The formats of decided hyperparameters."""
        lora, mixed = method.lora_rank is not None, method.precision == "bf16_mixed"
        half = torch.float32 if method.precision == "fp32" else torch.bfloat16
        masters = torch.float32 if mixed else half
        return cls(
            loaded=half if lora else masters,
            trained=torch.float32 if lora else masters,
            computed=half,
            mixed=mixed,
            autocast=mixed and method.zero_stage == 0,
            saved=torch.float32 if lora else half,
        )

    @property
    def policy(self) -> MixedPrecisionPolicy:
        """FSDP2's part of it.

        Ours rather than accelerate's, which also reduces in bfloat16 and rounds the outputs: the first DPO loss is
        0.6914 then, not ln 2, and margins double.
        """
        if not self.mixed:
            return MixedPrecisionPolicy()
        return MixedPrecisionPolicy(param_dtype=self.computed, reduce_dtype=self.trained)

    def to_json(self) -> dict[str, str]:
        """The formats by name, as a ``held`` event has them."""
        output = torch.float32 if self.autocast else self.computed
        found = {
            "weights": self.loaded,
            "masters": self.trained,
            "compute": self.computed,
            "reduce": self.trained,
            "output": output,
        }
        return {name: str(dtype).removeprefix("torch.") for name, dtype in found.items()}
