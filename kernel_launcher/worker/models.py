"""The models of one rank: the one that is trained, and the reference that DPO compares it with.

One rank alone holds the model that it has read. Of several, rank 0 reads the files; all of them build the model
without memory, spread it as the plan says, and get their parts from rank 0.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from peft import get_peft_model
from transformers import set_seed

from kernel_launcher.worker.base import load_model
from kernel_launcher.worker.loading import META, gather, materialize, spread, unwrapped
from kernel_launcher.worker.precision import Precision
from kernel_launcher.worker.proof import check_weights
from kernel_launcher.worker.rounding import narrowed
from kernel_launcher.worker.sharding import shard

if TYPE_CHECKING:
    from kernel_launcher.planner import Plan
    from kernel_launcher.worker.assignment import Rank
    from kernel_launcher.worker.base import Base


class Models:
    """What one rank holds.

    Attributes:
        policy: The model that is trained, before an adapter is put on it.
        precision: The number formats of the plan.
    """

    def __init__(self, base: Base, plan: Plan, device: torch.device, policy: Any, source: Any) -> None:
        self.policy = policy
        self.precision = Precision.of(plan.method)
        self._base, self._plan, self._device = base, plan, device
        self._source = source
        self._alone = plan.world_size == 1

    @classmethod
    def read(cls, base: Base, plan: Plan, rank: Rank, device: torch.device) -> Models:
        """Read the weights, on the rank that reads.

        Raises:
            ModelLoadError: They cannot be had, or do not fit.
        """
        dtype = Precision.of(plan.method).loaded
        if plan.world_size == 1:
            return cls(base, plan, device, load_model(base, dtype, device), None)
        source = load_model(base, dtype, torch.device("cpu")) if rank.is_first else None
        return cls(base, plan, device, load_model(base, dtype, META), source)

    def reference(self) -> Any:
        """A frozen model of its own with the base's weights; None where an adapter is switched off instead."""
        if self._plan.method.lora_rank:
            return None
        if self._alone:
            model = copy.deepcopy(self.policy)
        else:
            model = load_model(self._base, self.precision.loaded, META)
            self._fill(model, self._source, trained=False)
        return model.requires_grad_(False).eval()

    def place(self, model: Any, adapter: Any) -> None:
        """Give the trained model its memory, and let go of what was read.

        Args:
            model: The policy, or the adapter's wrapper around it.
            adapter: Its configuration; None if all weights are trained.
        """
        if self._alone:
            return
        source = self._source
        if source is not None and adapter is not None:
            # As TRL does it, so that an adapter begins alike on any number of ranks.
            set_seed(self._plan.method.seed)
            source = get_peft_model(source, copy.deepcopy(adapter))
        self._fill(model, source, trained=True)
        self._source = None

    def take_back(self, model: Any, *, keep: bool) -> Any:
        """The trained model as one rank alone would have it, on the rank that keeps it; every rank must be here."""
        method = self._plan.method
        if not method.zero_stage:
            if keep and not method.lora_rank:
                for name, weight in model.named_parameters():
                    weight.data = narrowed(name, weight.data, self.precision.saved, method.seed)
            return model
        parts = gather(model, self.precision.saved, method.seed, keep=keep)
        if not keep:
            return None
        whole = load_model(self._base, self.precision.saved, META)
        if hasattr(model, "peft_config"):
            whole = get_peft_model(whole, model.peft_config["default"])
        whole.load_state_dict(parts, strict=False, assign=True)
        unwrapped(whole).tie_weights()
        return whole

    def _fill(self, model: Any, source: Any, *, trained: bool) -> None:
        method = self._plan.method
        if method.zero_stage:
            shard(model, method, self.precision, self._device, trained=trained)
        materialize(model, self._device, offloaded=method.cpu_offload)
        spread(model, source, self._device)
        check_weights(model, source, self._base)
