"""A model without memory, made what a rank holds: in fake memory, checkpointed, sharded."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from trl.trainer.utils import add_fused_lm_head

from kernel_launcher.tracker.run import LORA_TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch.distributed.device_mesh import DeviceMesh

    from kernel_launcher.tracker.run import Run


def cut(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """A config of the first few layers: lists with an entry a layer are cut, too."""
    if isinstance(config.get("text_config"), dict):
        return {**config, "text_config": cut(config["text_config"], layers)}
    whole = config.get("num_hidden_layers")
    fewer = {key: value[:layers] for key, value in config.items() if isinstance(value, list) and len(value) == whole}
    return {**config, **fewer, "num_hidden_layers": layers}


def skeleton(config: Mapping[str, Any], run: Run) -> Any:
    """The model without memory, with TRL's head and a LoRA adapter where the run says so."""
    settings = AutoConfig.for_model(**{**config, "use_cache": False})
    full = run.precision == "fp32" or (run.precision == "bf16_mixed" and not run.lora)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            settings, dtype=torch.float32 if full else torch.bfloat16, attn_implementation="sdpa"
        )
        if run.loss == "fused":
            outputs = ("log_probs", "entropy", "is_top1") + (("mean_logits",) if run.method == "dpo" else ())
            add_fused_lm_head(model, outputs=outputs)
        return _adapted(model, run.lora) if run.lora else model


def decoder(model: Any, run: Run) -> Any:
    """The part of a model that has ``layers``."""
    return (model.get_base_model() if run.lora else model).get_decoder()


def prepare(model: Any, run: Run, mesh: DeviceMesh) -> None:
    """Make the trained model what a rank holds."""
    _prepare(model, run, mesh, trained=True)


def prepare_reference(model: Any, run: Run, mesh: DeviceMesh) -> None:
    """Make DPO's reference model what a rank holds: without a backward pass, resharded at any stage."""
    _prepare(model, replace(run, gradient_checkpointing=False), mesh, trained=False)


def _prepare(model: Any, run: Run, mesh: DeviceMesh, *, trained: bool) -> None:
    _materialize(model)
    model.train()
    base = model.get_base_model() if run.lora else model
    if run.gradient_checkpointing:
        base.activation_checkpointing_enable({"use_reentrant": False})
        if run.lora:
            model.enable_input_require_grads()
    if run.zero_stage:
        _shard(model, base, run, mesh, trained=trained)


def _adapted(model: Any, lora: dict[str, Any]) -> Any:
    config = LoraConfig(
        r=lora["rank"],
        lora_dropout=lora.get("dropout", 0.0),
        target_modules=list(lora.get("targets", LORA_TARGETS)),
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config)


def _materialize(model: nn.Module) -> None:
    """Fake tensors for the meta ones; what was tied stays tied."""
    made: dict[torch.Tensor, torch.Tensor] = {}
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            new = nn.Parameter(torch.empty(weight.shape, dtype=weight.dtype), requires_grad=weight.requires_grad)
            setattr(module, name, made.setdefault(weight, new))
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, made.setdefault(buffer, torch.empty(buffer.shape, dtype=buffer.dtype)))


def _shard(model: Any, base: Any, run: Run, mesh: DeviceMesh, *, trained: bool) -> None:
    """Shard with FSDP2: each decoder layer a unit, and the rest as one root unit or as accelerate groups it.

    Args:
        model: The module that is called.
        base: The same, or what is inside of an adapter's wrapper.
        run: How it is trained.
        mesh: The ranks.
        trained: Whether there is a backward pass.
    """
    mixed = run.precision == "bf16_mixed"
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if mixed else MixedPrecisionPolicy()
    reshard = run.zero_stage == 3 or not trained
    common: dict[str, Any] = {"mesh": mesh, "mp_policy": policy}
    text = base.get_decoder()
    for layer in text.layers:
        fully_shard(layer, reshard_after_forward=reshard, **common)
    if run.units == "accelerate" and trained:
        # fsdp2_prepare_model of accelerate 1.15.
        embedding, head = base.get_input_embeddings(), base.get_output_embeddings()
        if embedding.weight is head.weight:
            tail = [text.norm, embedding, head]
        else:
            fully_shard(embedding, reshard_after_forward=reshard, **common)
            tail = [text.norm, head]
        fully_shard(tail, reshard_after_forward=False, **common)
    fully_shard(model, reshard_after_forward=not trained, **common)


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
