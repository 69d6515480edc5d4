"""A run shows that it keeps its plan: what each rank holds, compared with what was decided."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from torch import distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel
from transformers import TrainerCallback

from kernel_launcher.facts.model import weight_files
from kernel_launcher.worker.errors import PlanNotKept
from kernel_launcher.worker.loading import local, tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import nn

    from kernel_launcher.planner import Plan
    from kernel_launcher.worker.base import Base
    from kernel_launcher.worker.precision import Precision
    from kernel_launcher.worker.reporter import Reporter

_SAMPLED_WEIGHTS = 8
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ADAMS = ("adamw_torch", "adamw_torch_fused")


class Proof(TrainerCallback):
    """Reports and checks what this rank holds.

    Args:
        plan: What was decided.
        precision: Its number formats.
        reporter: Where it is reported.
    """

    def __init__(self, plan: Plan, precision: Precision, reporter: Reporter) -> None:
        self._plan = plan
        self._precision = precision
        self._reporter = reporter
        self._grad_bytes = 0

    def on_train_begin(self, _: Any, __: Any, ___: Any, model: nn.Module, **____: Any) -> None:
        """The weights, as soon as they are wrapped."""
        check_placements(model, self._plan)
        check_formats(model, self._precision)
        self._reporter.put(
            "held",
            param_bytes=bytes_of(model.parameters()),
            placements=placements_of(model),
            dtypes=self._precision.to_json(),
            weights_hash=digest(fingerprint(model)),
        )

    def on_pre_optimizer_step(self, _: Any, state: Any, __: Any, model: nn.Module, **___: Any) -> None:
        """The gradients of step 1."""
        if state.global_step > 0:
            return
        used = [parameter for parameter in model.parameters() if parameter.grad is not None]
        self._grad_bytes = bytes_of(parameter.grad for parameter in used)
        _check_equal("gradients", bytes_of(used), self._grad_bytes)

    def on_optimizer_step(self, _: Any, state: Any, __: Any, optimizer: Any, **___: Any) -> None:
        """The states that the optimizer has made in step 1."""
        if state.global_step > 0:
            return
        values = [value for each in optimizer.state.values() for value in each.values()]
        optimizer_bytes = bytes_of(value for value in values if torch.is_tensor(value) and value.dim() > 0)
        if self._plan.method.optim in _ADAMS:
            _check_equal("optimizer states", 2 * bytes_of(optimizer.state), optimizer_bytes)
        self._reporter.put("held", grad_bytes=self._grad_bytes, optimizer_bytes=optimizer_bytes)


def check_wrapper(model: nn.Module, plan: Plan) -> None:
    """Whether gradients are averaged the way the plan says, by DDP or by FSDP2.

    Raises:
        PlanNotKept: They are not.
    """
    wanted = FSDPModule if plan.method.zero_stage else DistributedDataParallel
    if plan.world_size > 1 and not isinstance(model, wanted):
        raise PlanNotKept(
            f"zero_stage = {plan.method.zero_stage} on {plan.world_size} ranks means {wanted.__name__}, and the "
            f"model is a {type(model).__name__}."
        )


def check_placements(model: nn.Module, plan: Plan) -> None:
    """Whether every parameter is spread over all ranks just where the plan says so.

    Raises:
        PlanNotKept: It is not.
    """
    stage, ranks = plan.method.zero_stage, plan.world_size
    wanted = f"Shard(0) of {ranks}" if stage else "whole"
    wrong = {name: found for name, found in _placements(model) if found != wanted}
    if wrong:
        name, found = next(iter(wrong.items()))
        raise PlanNotKept(
            f"zero_stage = {stage} on {ranks} ranks means that each parameter is {wanted}, and {len(wrong)} are not: "
            f"{name} is {found}."
        )
    for name, parameter in model.named_parameters():
        held, expected = local(parameter).numel(), _share(parameter)
        if held != expected:
            raise PlanNotKept(f"{name}: this rank holds {held:,} numbers, and its share is {expected:,}.")


def check_formats(model: nn.Module, precision: Precision) -> None:
    """Whether no trained weight is kept in a narrower format than was planned.

    Raises:
        PlanNotKept: One is.
    """
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype.itemsize < precision.trained.itemsize:
            raise PlanNotKept(f"{name} is trained in {parameter.dtype}, and the plan says {precision.trained}.")


def check_weights(model: nn.Module, source: nn.Module | None, base: Base) -> None:
    """Whether the ranks hold, together, what rank 0 has read and what the files say; every rank must be here.

    Args:
        model: As the ranks hold it.
        source: What rank 0 has read; None on the others.
        base: Whose files they are.

    Raises:
        PlanNotKept: It is not.
    """
    mine = fingerprint(model)
    read = fingerprint(source).to(mine.device) if source is not None else torch.empty_like(mine)
    dist.broadcast(read, 0)
    names = [name for name, _ in tensors_of(model)]
    wrong = [name for name, differs in zip(names, (mine != read).tolist(), strict=True) if differs]
    wrong += list(_unlike_the_file(model, base))
    if wrong:
        raise PlanNotKept(
            f"rank {dist.get_rank()} does not hold the weights of {base.name}: {len(wrong)} differ, first {wrong[0]}."
        )


def fingerprint(model: nn.Module) -> torch.Tensor:
    """A number for each whole parameter and buffer: its bits, added up; the same however it is spread."""
    found = list(tensors_of(model))
    device = found[0][1].device  # parameters may lie in host memory, and buffers on a GPU
    sums = torch.stack([_sum_of_bits(local(tensor)).to(device) for _, tensor in found])
    sharded = torch.tensor([isinstance(tensor, DTensor) for _, tensor in found], device=sums.device)
    if sharded.any():
        shared = sums * sharded
        dist.all_reduce(shared)
        sums = torch.where(sharded, shared, sums)
    return sums


def digest(sums: torch.Tensor) -> str:
    """A fingerprint, short enough to compare by eye."""
    return hashlib.sha256(sums.cpu().numpy().tobytes()).hexdigest()[:16]


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of them on this rank."""
    return sum(local(tensor).numel() * tensor.element_size() for tensor in tensors)


def placements_of(model: nn.Module) -> dict[str, int]:
    """How many parameters there are of each placement."""
    return dict(Counter(found for _, found in _placements(model)))


def _placements(model: nn.Module) -> Iterator[tuple[str, str]]:
    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor):
            spread = ", ".join("Shard(0)" if found == Shard(0) else repr(found) for found in parameter.placements)
            yield name, f"{spread} of {parameter.device_mesh.size()}"
        else:
            yield name, "whole"


def _share(parameter: torch.Tensor) -> int:
    """Numbers that this rank should hold: rows are given out in equal chunks, the last ranks may get fewer."""
    if not isinstance(parameter, DTensor):
        return parameter.numel()
    rows = parameter.shape[0]
    chunk = -(-rows // parameter.device_mesh.size())
    mine = min(max(rows - parameter.device_mesh.get_rank() * chunk, 0), chunk)
    return mine * (parameter.numel() // rows)


def _sum_of_bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(_BITS[tensor.element_size()]).sum(dtype=torch.int64)


def _unlike_the_file(model: nn.Module, base: Base) -> Iterator[str]:
    """A few weights from the first to the last, whole, that are not what the file has under the same name."""
    weights = {_name_in_file(name): tensor for name, tensor in model.named_parameters()}
    stored = {name: path for path in weight_files(base.folder) for name in _names(path) if name in weights}
    names = sorted(stored)
    for name in names[:: max(1, len(names) // _SAMPLED_WEIGHTS)]:
        tensor = weights[name].detach()
        whole = (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()
        if dist.get_rank() == 0:
            with safe_open(stored[name], framework="pt") as file:
                expected = file.get_tensor(name).to(whole.dtype)
            if not torch.equal(expected, whole):
                yield name


def _names(path: Any) -> list[str]:
    with safe_open(path, framework="pt") as file:
        return list(file.keys())


def _name_in_file(name: str) -> str:
    """Without what PEFT adds to it."""
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def _check_equal(what: str, expected: int, found: int) -> None:
    if expected != found:
        raise PlanNotKept(f"{what} of step 1 take {found:,} bytes on this rank, and the plan means {expected:,}.")
