"""A training step over fake tensors, and the most bytes alive at once in each stretch of it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed as dist
from torch import nn
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from kernel_launcher.tracker.extrapolate import Stretch
from kernel_launcher.tracker.model import attention_masks, decoder, prepare, prepare_reference, skeleton

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernel_launcher.tracker.run import Run

BETA = 0.1


@dataclass(frozen=True, slots=True)
class Measured:
    """The second step of a run, where the optimizer's states exist.

    Attributes:
        peaks: The most bytes alive at once, by stretch.
        trained_bytes: Of the weights that are trained, over all ranks.
    """

    peaks: Mapping[Stretch, int]
    trained_bytes: int


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
    def peak_bytes(self) -> int:
        """The most bytes alive at once since the last reset."""
        return int(sum(self._peak_mem.values()))


@dataclass(slots=True)
class _Marks:
    """Ends a stretch and begins the next at each event of a step."""

    tracker: Tracker
    peaks: dict[Stretch, int] = field(default_factory=dict)
    now: Stretch | None = None
    micro_batch: int = 0
    backward: bool = False

    def begin(self, phase: str, layer: int | None = None) -> None:
        self.end()
        self.now = Stretch(phase, layer, self.micro_batch)
        self.tracker.reset()

    def end(self) -> None:
        if self.now is not None:
            self.peaks[self.now] = max(self.peaks.get(self.now, 0), self.tracker.peak_bytes)
        self.now = None

    def watch(self, layers: Any, *, reference: bool) -> None:
        """Begin a stretch before and after each layer, forward and backward."""
        for place, layer in enumerate(layers):
            layer.register_forward_pre_hook(self._before(place, reference=reference))
        for place, layer in enumerate(layers):
            layer.register_forward_hook(self._after(place, last=place == len(layers) - 1))

    def _before(self, place: int, *, reference: bool) -> Callable[..., None]:
        def before(_: object, inputs: tuple[Any, ...]) -> None:
            if self.backward:  # a recompute
                return
            alone = reference or not torch.is_grad_enabled()
            self.begin("reference forward" if alone else "layer forward", place)
            if place == 0 and not alone and inputs and inputs[0].requires_grad:
                inputs[0].register_hook(lambda _: self.begin("end of backward"))

        return before

    def _after(self, place: int, *, last: bool) -> Callable[..., None]:
        def after(_: object, __: object, output: Any) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            if self.backward or not torch.is_grad_enabled():
                return
            if hidden.requires_grad:
                hidden.register_hook(lambda _: self.begin("layer backward", place))
            if last:
                self.begin("loss, forward")

        return after


def measure(config: Mapping[str, Any], run: Run) -> Measured:
    """The stretches of a training step of the model that a config.json describes."""
    dist.init_process_group("fake", rank=0, world_size=run.world_size, store=FakeStore())
    try:
        # What reads or makes real values cannot be under the fake mode.
        mesh = init_device_mesh("cpu", (run.world_size,))
        model = skeleton(config, run)
        trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
        reference = skeleton(config, run).requires_grad_(False) if run.method == "dpo" and not run.lora else None
        with attention_masks(padded=run.mask), FakeTensorMode():
            prepare(model, run, mesh)
            if reference is not None:
                prepare_reference(reference, run, mesh)
            return Measured(_step_peaks(run, model, reference), trained)
    finally:
        dist.destroy_process_group()


def _step_peaks(run: Run, model: Any, reference: Any) -> dict[Stretch, int]:
    trained = [p for p in model.parameters() if p.requires_grad]
    foreach = run.optimizer == "foreach"
    optimizer = torch.optim.AdamW(trained, lr=1e-5, foreach=foreach, fused=not foreach)
    ids = torch.zeros(run.rows, run.seq_length, dtype=torch.int64)
    tracker = Tracker()
    tracker.track_external(model, reference, ids)
    marks = _Marks(tracker)
    marks.watch(decoder(model, run).layers, reference=False)
    if reference is not None:
        marks.watch(decoder(reference, run).layers, reference=True)
    with tracker:
        for _ in range(2):
            marks.peaks.clear()
            for marks.micro_batch, reduced in enumerate(run.micro_batches):
                if run.zero_stage:
                    model.set_requires_gradient_sync(reduced)
                marks.begin("start of forward")
                with _autocast(run):
                    loss = _loss(run, model, reference, ids, marks)
                marks.begin("loss, backward")
                marks.backward = True
                loss.backward()
                marks.backward = False
                del loss
            marks.begin("optimizer step")
            optimizer.step()
            marks.end()
            optimizer.zero_grad()
    return marks.peaks


def _loss(run: Run, model: Any, reference: Any, ids: torch.Tensor, marks: _Marks) -> torch.Tensor:
    """The loss of one micro-batch, of full logits or through TRL's fused head."""
    if run.loss == "hf":
        return model(input_ids=ids, labels=ids).loss
    outputs = model(input_ids=ids, labels=ids, fused_lm_head=True)
    if run.method == "sft":
        return -outputs.log_probs.sum() / ids.numel()
    chosen, rejected = outputs.log_probs.sum(dim=1).chunk(2)
    marks.begin("reference forward")
    without = contextlib.nullcontext() if reference is not None else model.disable_adapter()
    with torch.no_grad(), without:
        expected = (reference or model)(input_ids=ids, labels=ids, fused_lm_head=True)
    reference_chosen, reference_rejected = expected.log_probs.sum(dim=1).chunk(2)
    margin = (chosen - reference_chosen) - (rejected - reference_rejected)
    # The metrics read these after the backward pass, so the outputs outlive the loss.
    return -nn.functional.logsigmoid(BETA * margin).mean()


def _autocast(run: Run) -> contextlib.AbstractContextManager[Any]:
    """Mixed precision as DDP does it; FSDP2 has a policy for it."""
    wanted = run.precision == "bf16_mixed" and not run.zero_stage
    return torch.autocast("cpu", dtype=torch.bfloat16) if wanted else contextlib.nullcontext()
