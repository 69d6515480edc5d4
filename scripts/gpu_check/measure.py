"""A few training steps of one row: the worker's own sharding, formats and optimizer around a random model."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import time
from typing import TYPE_CHECKING, Any

import torch
from allocations import most_alive
from gpu_check.rows import LORA_RANK, TARGETS
from torch import distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM

from kernel_launcher.worker.loading import local, materialize
from kernel_launcher.worker.optimizer import StochasticAdamW
from kernel_launcher.worker.precision import Precision
from kernel_launcher.worker.sharding import shard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_check.rows import Row

WARM, MEASURED = 1, 3
LEARNING_RATE = 1e-4


class CheckError(Exception):
    """A row did something else than it should."""


def loss_kind() -> str:
    """TRL's fused head, where TRL has it, or the model's own loss of full logits."""
    if importlib.util.find_spec("trl") is None:
        return "logits"
    from trl.trainer import utils

    return "fused" if hasattr(utils, "add_fused_lm_head") else "logits"


def run(row: Row, config: dict[str, Any], *, length: int, device: torch.device) -> dict[str, Any]:
    """Loss before and after, tokens a second of this rank, bytes at the peak, bytes of weights, seconds of the step.

    Raises:
        CheckError: Parameters are not spread as the stage says, or the loss does not fall.
    """
    gc.collect()
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    model, loss = build(row, config, device)
    check_spread(row, model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rounds = row.precision == "bf16" and not row.lora and not row.nearest
    optimizer = (
        StochasticAdamW(trained, lr=LEARNING_RATE)
        if rounds
        else torch.optim.AdamW(trained, lr=LEARNING_RATE, fused=True)
    )
    generator = torch.Generator().manual_seed(dist.get_rank() if dist.is_initialized() else 0)
    shape = (row.micro_batch, length)
    ids = torch.randint(5, config["vocab_size"], shape, generator=generator).to(device)

    def step() -> tuple[float, float]:
        with torch.autocast(device.type, torch.bfloat16, enabled=Precision.of(row.method).autocast):
            value = loss(ids)
        value.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        _wait(device)
        started = time.perf_counter()
        optimizer.step()
        _wait(device)
        optimizer.zero_grad()
        return float(value.detach()), time.perf_counter() - started

    losses = [step()[0] for _ in range(WARM)]
    gc.collect()  # freed while we look, what earlier steps have left would be missing from the peak
    with _peak(device, before, [*model.parameters(), *_states(optimizer), ids]) as peak:
        step()
    started = time.perf_counter()
    timed = [step() for _ in range(MEASURED)]
    seconds = (time.perf_counter() - started) / MEASURED
    losses += [value for value, _ in timed]
    if row.group != "eight" and not losses[-1] < losses[0]:
        raise CheckError(f"the loss does not fall: {losses}")
    return {
        "losses": losses if row.group != "eight" else [],
        "tokens_per_second": ids.numel() / seconds,
        "optimizer_seconds": min(spent for _, spent in timed),
        "peak_bytes": peak[0],
        "weight_bytes": sum(local(p).numel() * p.element_size() for p in model.parameters()),
    }


def build(row: Row, config: dict[str, Any], device: torch.device) -> tuple[nn.Module, Any]:
    """The model as one rank has it, and its loss."""
    precision = Precision.of(row.method)
    settings = AutoConfig.for_model(**config, use_cache=False)
    torch.manual_seed(0)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(settings, dtype=precision.loaded, attn_implementation="sdpa")
    if row.liger:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance

        # As TRL has it: the loss stays with its own fused head.
        _apply_liger_kernel_to_instance(model=model, fused_linear_cross_entropy=False)
    model.train()
    fused = loss_kind() == "fused"
    if fused:
        from trl.trainer.utils import add_fused_lm_head

        add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    if row.recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if row.lora:
        from peft import LoraConfig, get_peft_model

        if row.recompute:
            model.enable_input_require_grads()
        model = get_peft_model(model, LoraConfig(r=LORA_RANK, target_modules=list(TARGETS), task_type="CAUSAL_LM"))
    if row.stage:
        shard(model, row.method, precision, device)
    materialize(model, device, offloaded=row.offload)
    fill(model, settings)
    called = model
    if row.group == "together" and not row.stage:
        called = nn.parallel.DistributedDataParallel(model)

    def loss(ids: torch.Tensor) -> torch.Tensor:
        if fused:
            return -called(input_ids=ids, labels=ids, fused_lm_head=True).log_probs.sum() / ids.numel()
        return called(input_ids=ids, labels=ids).loss

    return model, loss


@torch.no_grad()
def fill(model: nn.Module, settings: Any) -> None:
    """Random weights, the same whole ones however they are spread over the ranks that exist."""
    for name, parameter in model.named_parameters():
        mine = local(parameter)
        if parameter.dim() < 2:
            mine.fill_(1.0)
        elif "lora_B" in name:
            mine.zero_()
        elif isinstance(parameter, DTensor) and dist.get_backend() != "fake":
            rows = -(-parameter.shape[0] // dist.get_world_size())
            whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=mine.device).normal_(std=0.02)
            mine.copy_(whole[rows * dist.get_rank() :][: mine.shape[0]])
        else:
            mine.normal_(std=0.02)
    for module in model.modules():
        if buffers := dict(module.named_buffers(recurse=False)):  # rotary frequencies: made by their constructor
            for name, right in type(module)(settings).named_buffers():
                buffers[name].copy_(right)


def check_spread(row: Row, model: nn.Module) -> None:
    """Every parameter is a DTensor where the stage shards, and none is where it does not.

    Raises:
        CheckError: One is not.
    """
    wrong = [name for name, found in model.named_parameters() if isinstance(found, DTensor) != bool(row.stage)]
    if wrong:
        raise CheckError(f"{len(wrong)} parameters are not spread as stage {row.stage} says, first {wrong[0]}")


@contextlib.contextmanager
def _peak(device: torch.device, before: int, kept: list[torch.Tensor]) -> Iterator[list[int]]:
    """The most bytes of tensors in a step; torch counts them on a GPU, and on a processor its profiler does."""
    found: list[int] = []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield found
        found.append(torch.cuda.max_memory_allocated(device) - before)
        return
    own = sum(local(tensor).numel() * tensor.element_size() for tensor in kept)
    with torch.profiler.profile(profile_memory=True) as profiled:
        yield found
    found.append(own + most_alive(profiled))


def _states(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for state in optimizer.state.values():
        yield from (value for value in state.values() if value.dim() > 0)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
