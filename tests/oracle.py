"""What training must come to: a plain loop over DDP or FSDP2, without Trainer, accelerate or our worker around it.

    RANK=… WORLD_SIZE=… MASTER_ADDR=… MASTER_PORT=… python -m tests.oracle CELLS.json RESULTS.json

``CELLS.json`` is a list of cells, trained one after the other by the same ranks; rank 0 writes losses, gradient norms
and seconds of each step of each cell.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

from kernel_launcher.worker.optimizer import StochasticAdamW

if TYPE_CHECKING:
    from collections.abc import Iterator

IGNORED = -100
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
Batch = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training run.

    Attributes:
        base: Folder of the model.
        rows: Arrow stream: ``input_ids`` and ``labels``; for DPO ``prompt_ids``, ``chosen_ids``, ``rejected_ids``.
        method: ``sft_text`` or ``dpo``.
        stage: 0 is DDP; 2 and 3 are FSDP2 without and with resharding after forward.
        precision: As in a job's spec.
        lora_rank: None trains all weights.
        adapter: File with the adapter's first weights (safetensors); None draws them from the seed.
        steps: Optimizer steps.
        learning_rate: At its peak.
        schedule: ``constant``, ``linear`` or ``cosine``, to zero.
        warmup: Steps to the peak.
        micro_batch: Rows of a micro-batch.
        accumulation: Micro-batches a step.
        clip: Gradient norm is clipped here; 0 never clips.
        weight_decay: Of matrices.
        beta: Of DPO.
        recompute: Activation checkpointing.
        pad: Token that fills up short rows.
        seed: Of the order of the rows, and of the adapter.
        trl_head: TRL's own loss of supervised rows, for benchmarks: it saves the logits and takes an eighth longer.
    """

    base: str
    rows: str
    method: Literal["sft_text", "dpo"] = "sft_text"
    stage: Literal[0, 2, 3] = 0
    precision: Literal["bf16", "bf16_mixed", "fp32"] = "fp32"
    lora_rank: int | None = None
    adapter: str | None = None
    steps: int = 4
    learning_rate: float = 1e-3
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    warmup: int = 0
    micro_batch: int = 2
    accumulation: int = 1
    clip: float = 1.0
    weight_decay: float = 0.0
    beta: float = 0.1
    recompute: bool = False
    pad: int = 0
    seed: int = 42
    trl_head: bool = False


@dataclass(frozen=True)
class Result:
    """What came of a cell, step by step.

    Attributes:
        losses: Mean over the labelled tokens of all ranks, or over the pairs.
        grad_norms: Before clipping.
        seconds: Of wall clock.
        tokens: Of all ranks, without padding.
    """

    losses: list[float]
    grad_norms: list[float]
    seconds: list[float]
    tokens: list[int]


def train(cell: Cell) -> Result:
    """Train one cell on all ranks."""
    model = load(cell)
    reference = None
    if cell.method == "dpo" and cell.lora_rank is None:
        reference = wrapped(deepcopy(model).requires_grad_(False), cell)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model = wrapped(model, cell)
    if cell.stage:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = optimizer_of(cell, parameters)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: share_of_peak(cell, step))
    result = Result([], [], [], [])
    for batches in steps(cell):
        started = time.perf_counter()
        items = all_ranks(sum((batch["labels"][:, 1:] != IGNORED).sum() for batch in batches))
        total = torch.zeros(())
        for number, batch in enumerate(batches):
            with reduced(model, cell, last=number == len(batches) - 1):
                with torch.autocast("cpu", torch.bfloat16, enabled=cell.precision == "bf16_mixed" and not cell.stage):
                    loss = loss_of(cell, model, reference, batch, items)
                loss.backward()
            total += loss.detach()
        norm = clipped(cell, parameters)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        result.losses.append(float(all_ranks(total)) / dist.get_world_size())
        result.grad_norms.append(norm)
        result.seconds.append(time.perf_counter() - started)
        result.tokens.append(int(all_ranks(sum(batch["attention_mask"].sum() for batch in batches))))
    return result


def load(cell: Cell) -> nn.Module:
    """The model as every rank starts with it, with its adapter."""
    masters = torch.bfloat16 if cell.precision == "bf16" else torch.float32
    frozen = torch.float32 if cell.precision == "fp32" else torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(cell.base, dtype=frozen if cell.lora_rank else masters)
    model.train()
    if cell.trl_head:
        from trl.trainer.utils import add_fused_lm_head

        add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    if cell.recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if cell.lora_rank is None:
        return model
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(cell.seed)
    adapter = LoraConfig(r=cell.lora_rank, lora_alpha=cell.lora_rank, target_modules=TARGETS, task_type="CAUSAL_LM")
    adapted = get_peft_model(model, adapter)
    if cell.adapter is not None:
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        set_peft_model_state_dict(adapted, load_file(cell.adapter))
    return adapted


def wrapped(model: nn.Module, cell: Cell) -> nn.Module:
    """The model as the stage spreads it."""
    if not cell.stage:
        frozen = not any(parameter.requires_grad for parameter in model.parameters())
        return model if frozen else DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    mixed = cell.precision == "bf16_mixed"
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if mixed else MixedPrecisionPolicy()
    base = model.get_base_model() if cell.lora_rank else model
    for layer in base.get_decoder().layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=cell.stage == 3)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def optimizer_of(cell: Cell, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW; matrices decay, norms and biases do not."""
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": cell.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    if cell.precision == "bf16" and cell.lora_rank is None:
        return StochasticAdamW(groups, lr=cell.learning_rate, seed=cell.seed)
    return torch.optim.AdamW(groups, lr=cell.learning_rate, fused=True)


def clipped(cell: Cell, parameters: list[nn.Parameter]) -> float:
    """The norm of all gradients before they are clipped, added up in float64: torch's own depends on the shards."""
    gradients = [parameter.grad.to_local() if cell.stage else parameter.grad for parameter in parameters]
    square = sum((gradient.double().square().sum() for gradient in gradients), torch.zeros((), dtype=torch.float64))
    norm = float(all_ranks(square) if cell.stage else square) ** 0.5
    if cell.clip and norm > cell.clip:
        for gradient in gradients:
            gradient.mul_(cell.clip / (norm + 1e-6))
    return norm


def share_of_peak(cell: Cell, step: int) -> float:
    """The learning rate after so many steps, over its peak."""
    if step < cell.warmup:
        return step / cell.warmup
    done = (step - cell.warmup) / max(1, cell.steps - cell.warmup)
    return {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[cell.schedule]


def steps(cell: Cell) -> Iterator[list[Batch]]:
    """This rank's micro-batches, step by step, of one epoch: shuffled by seed, and dealt out to the ranks in turn."""
    rows = pa.ipc.open_stream(cell.rows).read_all().to_pylist()
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(cell.seed)).tolist()
    each = dist.get_world_size() * cell.micro_batch
    if len(order) < cell.steps * cell.accumulation * each:
        raise ValueError(f"{len(order)} rows are not enough for {cell.steps} steps.")
    for step in range(cell.steps):
        batches = []
        for number in range(cell.accumulation):
            start = (step * cell.accumulation + number) * each + dist.get_rank() * cell.micro_batch
            batches.append(collated(cell, [rows[row] for row in order[start : start + cell.micro_batch]]))
        yield batches


def collated(cell: Cell, rows: list[dict[str, list[int]]]) -> Batch:
    """Rows side by side, filled up on the right; of pairs, the chosen ones first."""
    if cell.method == "dpo":
        texts = [(row["prompt_ids"], row[end]) for end in ("chosen_ids", "rejected_ids") for row in rows]
        rows = [{"input_ids": p + a, "labels": [IGNORED] * len(p) + a} for p, a in texts]
    length = max(len(row["input_ids"]) for row in rows)

    def filled(name: str, value: int) -> torch.Tensor:
        return torch.tensor([row[name] + [value] * (length - len(row[name])) for row in rows])

    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    mask = (torch.arange(length) < lengths[:, None]).long()
    return {"input_ids": filled("input_ids", cell.pad), "labels": filled("labels", IGNORED), "attention_mask": mask}


def loss_of(
    cell: Cell, model: nn.Module, reference: nn.Module | None, batch: Batch, items: torch.Tensor
) -> torch.Tensor:
    """This rank's part of the loss of a step: averaged over ranks and added up over micro-batches, it is the loss."""
    likely = log_likelihoods(cell, model, batch)
    if cell.method == "sft_text":
        return -likely.sum() * dist.get_world_size() / items
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    with torch.no_grad(), contextlib.nullcontext() if reference is not None else inner.disable_adapter():
        expected = log_likelihoods(cell, reference if reference is not None else model, batch)
    chosen, rejected = (likely - expected).sum(1).chunk(2)
    return -functional.logsigmoid(cell.beta * (chosen - rejected)).mean() / cell.accumulation


def log_likelihoods(cell: Cell, model: nn.Module, batch: Batch) -> torch.Tensor:
    """Of each labelled token, zero elsewhere, shape (rows, length - 1)."""
    if cell.trl_head:
        return model(**batch, use_cache=False, fused_lm_head=True).log_probs
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
    labels = batch["labels"][:, 1:]
    losses = functional.cross_entropy(logits[:, :-1].float().transpose(1, 2), labels, reduction="none")
    return -losses


@contextlib.contextmanager
def reduced(model: nn.Module, cell: Cell, *, last: bool) -> Iterator[None]:
    """Gradients of all but the last micro-batch stay on their rank."""
    if cell.stage:
        model.set_requires_gradient_sync(last)
        yield
        return
    with contextlib.nullcontext() if last else model.no_sync():
        yield


def all_ranks(value: Any) -> torch.Tensor:
    """The sum over all ranks."""
    summed = torch.as_tensor(value).clone()
    dist.all_reduce(summed)
    return summed


def main(cells: str, results: str) -> None:
    """Train all cells; rank 0 writes what came of them."""
    dist.init_process_group("gloo")
    found = [asdict(train(Cell(**cell))) for cell in json.loads(Path(cells).read_text(encoding="utf-8"))]
    if dist.get_rank() == 0:
        Path(results).write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # gloo's threads may abort the interpreter's own end
