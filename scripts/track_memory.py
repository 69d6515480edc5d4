"""Measure what a training step holds at its worst moments, without a GPU: torch's own tracker over fake tensors.

    python scripts/track_memory.py '{"model": "Qwen3-4B", "layers": 4, "zero_stage": 3, "world_size": 4}'
    python scripts/track_memory.py --again --only Llama

Each run prints one row as tests/data/tracker.jsonl has them; ``--again`` repeats those rows and prints what differs.
The process plays one rank of many (a fake process group) and nothing is computed, so a run takes seconds and little
memory. Kernels and TRL's loss are those of the CPU; gradients are never added in place, as under any dispatch mode.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch import nn
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from trl.trainer.utils import add_fused_lm_head

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.distributed.device_mesh import DeviceMesh

DATA = Path(__file__).parent.parent / "tests" / "data"
GIB = 2**30
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
BETA = 0.1
# What a row says when it leaves a key out.
DEFAULTS: dict[str, Any] = {
    "layers": 4,
    "micro_batch_size": 1,
    "seq_length": 1024,
    "world_size": 4,
    "zero_stage": 3,
    "precision": "bf16",
    "gradient_checkpointing": True,
    "optimizer": "foreach",
    "method": "sft",
    "lora": None,
    "loss": "hf",
    "mask": True,
    "units": "root",
    "accumulation": "none",
}


class Tracker(MemTracker):
    """Torch's tracker without its module hooks, which know neither frozen weights nor groups of sharded modules."""

    def __enter__(self) -> Self:
        self._fake_mode_on_entry = active_fake_mode()
        self._track_resize()
        self._register_global_optimizer_hook()
        self.reset()
        TorchDispatchMode.__enter__(self)
        return self

    def __exit__(self, *raised: object) -> None:
        TorchDispatchMode.__exit__(self, *raised)
        self._deregister_param_and_optimizer_hooks()
        self._restore_resize()

    def reset(self) -> None:
        """Forget the peak so far."""
        self._peak_mem_snap = self.get_tracker_snapshot("current")
        self._peak_mem = {device: terms["Total"] for device, terms in self._peak_mem_snap.items()}

    @property
    def peak_gib(self) -> float:
        """The most bytes alive at once since the last reset."""
        return round(sum(self._peak_mem.values()) / GIB, 3)


def measure(row: dict[str, Any]) -> dict[str, Any]:
    """The peaks of a training step in its second iteration, where the optimizer's states exist."""
    run = DEFAULTS | row
    dist.init_process_group("fake", rank=0, world_size=run["world_size"], store=FakeStore())
    try:
        # What reads or makes real values cannot be under the fake mode.
        mesh = init_device_mesh("cpu", (run["world_size"],))
        model = skeleton(run)
        reference = skeleton(run).requires_grad_(False) if run["method"] == "dpo" and not run["lora"] else None
        with attention_masks(padded=run["mask"]), FakeTensorMode():
            prepare(model, run, mesh)
            if reference is not None:
                prepare(reference, run | {"gradient_checkpointing": False}, mesh, whole=True)
            return {"peak_gib": step_peaks(run, model, reference)}
    finally:
        dist.destroy_process_group()


def step_peaks(run: dict[str, Any], model: Any, reference: Any) -> dict[str, float]:
    """Peaks by part of the step: forward, forward and backward, optimizer."""
    trained = [p for p in model.parameters() if p.requires_grad]
    foreach = run["optimizer"] == "foreach"
    optimizer = torch.optim.AdamW(trained, lr=1e-5, foreach=foreach, fused=not foreach)
    rows = run["micro_batch_size"] * (2 if run["method"] == "dpo" else 1)
    ids = torch.zeros(rows, run["seq_length"], dtype=torch.int64)
    tracker = Tracker()
    tracker.track_external(model, reference, ids)
    peaks: dict[str, float] = {}
    with tracker:
        for _ in range(2):
            peaks = {"forward": 0.0, "forward_backward": 0.0}
            for reduced in micro_batches(run):
                if run["zero_stage"]:
                    model.set_requires_gradient_sync(reduced)
                tracker.reset()
                with autocast(run):
                    loss = loss_of(run, model, reference, ids)
                peaks["forward"] = max(peaks["forward"], tracker.peak_gib)
                loss.backward()
                del loss
                peaks["forward_backward"] = max(peaks["forward_backward"], tracker.peak_gib)
            tracker.reset()
            optimizer.step()
            peaks["step"] = tracker.peak_gib
            optimizer.zero_grad()
    return peaks


def micro_batches(run: dict[str, Any]) -> tuple[bool, ...]:
    """For each micro-batch of a step, whether its gradients are reduced over the ranks."""
    return {"none": (True,), "reduced": (True, True), "unreduced": (False, True)}[run["accumulation"]]


def skeleton(run: dict[str, Any]) -> Any:
    """The model without memory: reduced in layers, with TRL's head and a LoRA adapter where the row says so."""
    settings = json.loads((DATA / "tracker_models.json").read_text())[run["model"]]
    config = AutoConfig.for_model(**settings | {"num_hidden_layers": run["layers"], "use_cache": False})
    full = run["precision"] == "fp32" or (run["precision"] == "bf16_mixed" and not run["lora"])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32 if full else torch.bfloat16, attn_implementation="sdpa"
        )
        if run["loss"] == "fused":
            outputs = ("log_probs", "entropy", "is_top1") + (("mean_logits",) if run["method"] == "dpo" else ())
            add_fused_lm_head(model, outputs=outputs)
        return adapted(model, run["lora"]) if run["lora"] else model


def prepare(model: Any, run: dict[str, Any], mesh: DeviceMesh, *, whole: bool = False) -> None:
    """Make the model what a rank holds: in (fake) memory, checkpointed, sharded."""
    materialize(model)
    model.train()
    base = model.get_base_model() if run["lora"] else model
    if run["gradient_checkpointing"]:
        base.activation_checkpointing_enable({"use_reentrant": False})
        if run["lora"]:
            model.enable_input_require_grads()
    if run["zero_stage"]:
        shard(model, base, run, mesh, whole=whole)


def adapted(model: Any, lora: dict[str, Any]) -> Any:
    """The model with a LoRA adapter."""
    targets = list(lora.get("targets", LORA_TARGETS))
    config = LoraConfig(
        r=lora["rank"], lora_dropout=lora.get("dropout", 0.0), target_modules=targets, task_type="CAUSAL_LM"
    )
    return get_peft_model(model, config)


def materialize(model: nn.Module) -> None:
    """Fake tensors for the meta ones; what was tied stays tied."""
    made: dict[torch.Tensor, torch.Tensor] = {}
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            new = nn.Parameter(torch.empty(weight.shape, dtype=weight.dtype), requires_grad=weight.requires_grad)
            setattr(module, name, made.setdefault(weight, new))
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, made.setdefault(buffer, torch.empty(buffer.shape, dtype=buffer.dtype)))


def shard(model: Any, base: Any, run: dict[str, Any], mesh: DeviceMesh, *, whole: bool) -> None:
    """Shard with FSDP2: each decoder layer a unit, and the rest as one root unit or as accelerate groups it.

    Args:
        model: The module that is called.
        base: The same, or what is inside of an adapter's wrapper.
        run: The row.
        mesh: The ranks.
        whole: One unit, as TRL shards a reference model.
    """
    mixed = run["precision"] == "bf16_mixed"
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if mixed else MixedPrecisionPolicy()
    reshard = run["zero_stage"] == 3
    common: dict[str, Any] = {"mesh": mesh, "mp_policy": policy}
    if whole:
        fully_shard(model, reshard_after_forward=reshard, **common)
        return
    for layer in base.model.layers:
        fully_shard(layer, reshard_after_forward=reshard, **common)
    if run["units"] == "accelerate":
        # fsdp2_prepare_model of accelerate 1.15.
        embedding, head = base.get_input_embeddings(), base.get_output_embeddings()
        if embedding.weight is head.weight:
            tail = [base.model.norm, embedding, head]
        else:
            fully_shard(embedding, reshard_after_forward=reshard, **common)
            tail = [base.model.norm, head]
        fully_shard(tail, reshard_after_forward=False, **common)
    fully_shard(model, **common)


def loss_of(run: dict[str, Any], model: Any, reference: Any, ids: torch.Tensor) -> torch.Tensor:
    """The loss of one micro-batch, of full logits or through TRL's fused head."""
    if run["loss"] == "hf":
        return model(input_ids=ids, labels=ids).loss
    outputs = model(input_ids=ids, labels=ids, fused_lm_head=True)
    if run["method"] == "sft":
        return -outputs.log_probs.sum() / ids.numel()
    chosen, rejected = outputs.log_probs.sum(dim=1).chunk(2)
    without = contextlib.nullcontext() if reference is not None else model.disable_adapter()
    with torch.no_grad(), without:
        expected = (reference or model)(input_ids=ids, labels=ids, fused_lm_head=True)
    reference_chosen, reference_rejected = expected.log_probs.sum(dim=1).chunk(2)
    margin = (chosen - reference_chosen) - (rejected - reference_rejected)
    # The metrics read these after the backward pass, so the outputs outlive the loss.
    return -nn.functional.logsigmoid(BETA * margin).mean()


def autocast(run: dict[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """Mixed precision as DDP does it; FSDP2 has a policy for it."""
    wanted = run["precision"] == "bf16_mixed" and not run["zero_stage"]
    return torch.autocast("cpu", dtype=torch.bfloat16) if wanted else contextlib.nullcontext()


@contextlib.contextmanager
def attention_masks(*, padded: bool) -> Iterator[None]:
    """Masks as in real runs of padded or equally long rows; fake tensors always get one, as nobody can read them."""

    def unpadded(*args: Any, **kwargs: Any) -> torch.Tensor | None:
        window = kwargs.get("local_size")
        return sdpa_mask(*args, **kwargs) if window is not None and kwargs["kv_length"] >= window else None

    if not padded:
        ALL_MASK_ATTENTION_FUNCTIONS["sdpa"] = unpadded
    try:
        yield
    finally:
        ALL_MASK_ATTENTION_FUNCTIONS["sdpa"] = sdpa_mask


def source() -> str:
    """What a row says about where it is from."""
    packages = ("torch", "transformers", "trl", "peft")
    return "track_memory.py: " + ", ".join(f"{name} {version(name)}" for name in packages)


def main() -> int:
    """Measure and print; the exit code says whether repeated rows came out the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="runs as JSON objects; keys left out: " + json.dumps(DEFAULTS))
    parser.add_argument("--again", action="store_true", help="repeat the rows of tests/data/tracker.jsonl")
    parser.add_argument("--only", default="", help="with --again: only rows that contain this text")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if not options.again:
        for text in options.rows:
            row = json.loads(text)
            print(json.dumps(DEFAULTS | row | measure(row) | {"source": source()}), flush=True)
        return 0
    different = 0
    for line in (DATA / "tracker.jsonl").read_text().splitlines():
        if options.only in line:
            row = json.loads(line)
            peaks = measure(row)["peak_gib"]
            same = all(peaks[part] == known for part, known in row["peak_gib"].items())
            different += not same
            print("same" if same else f"DIFFERS: {peaks}", line[:160], flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
