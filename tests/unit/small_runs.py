"""A real trainer of one rank on the tiny model, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_launcher.planner import Hardware, ModelFacts, make_plan
from kernel_launcher.spec import JobSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kernel_launcher.planner import Plan
    from kernel_launcher.worker.steps import StepReporter
    from tests.conftest import Sample

CPU = Hardware(gpu_type="CPU", cores=1, host_memory_bytes=2**36)


class Told:
    """Stands for the reporter: keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.step = 0

    def put(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))

    def enter(self, phase: str) -> None:
        self.put("phase", phase=phase)

    def report_step(self, step: int, total_steps: int, metrics: dict[str, float]) -> None:
        self.put("step", step=step, total_steps=total_steps, metrics=metrics)

    def warn(self, message: str) -> None:
        self.put("warning", message=message)

    def say(self, text: str) -> None:
        """The log is not looked at."""

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of one kind, in order."""
        return [fields for found, fields in self.events if found == kind]

    def metrics(self, name: str) -> list[float | None]:
        """One metric of each step; None where a step has none."""
        return [fields["metrics"].get(name) for fields in self.of("step")]


def small_plan(**method: Any) -> Plan:
    """A plan of one rank on a processor; float32 unless ``method`` says otherwise."""
    sections = {"model": {"base": "x/y"}, "method": {"precision": "fp32", **method}, "resources": {"gpu_count": 1}}
    return make_plan(JobSpec.from_sections(sections), CPU, ModelFacts(param_count=10**6))


def small_run(
    sample: Sample,
    folder: Path,
    rows: Sequence[dict[str, list[int]]],
    plan: Plan,
    *,
    samples: Callable[[Any, Told, StepReporter], Any] | None = None,
    optimizer: Callable[[Any], Any] | None = None,
) -> Told:
    """Train the tiny model as planned, and watch what the updates do.

    Args:
        sample: Where it is.
        folder: Where the trainer may write.
        rows: With ``input_ids`` and ``labels``; with ``lengths``, if they are packed.
        plan: What was decided.
        samples: Makes one more callback, from the trainer, the reporter and the callback that reports steps.
        optimizer: Makes one of the trained parameters.
    """
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, set_seed

    from kernel_launcher.worker.adapter import lora_config
    from kernel_launcher.worker.learning import Learning
    from kernel_launcher.worker.sft import sft_trainer
    from kernel_launcher.worker.steps import StepReporter

    set_seed(0)
    dtype = torch.bfloat16 if plan.method.precision == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(sample.tiny, dtype=dtype)
    trainer = sft_trainer(
        plan,
        output_dir=str(folder),
        processing_class=AutoTokenizer.from_pretrained(sample.tiny),
        model=model,
        train_dataset=Dataset.from_list(list(rows)),
        peft_config=lora_config(model, plan.method, warn=print),
        **({} if optimizer is None else {"optimizers": (optimizer(model.parameters()), None)}),
    )
    trainer.remove_callback(PrinterCallback)
    told = Told()
    learning = Learning(told.warn)
    steps = StepReporter(trainer.tokens, trainer.own_losses, told, lambda: learning.metrics)  # type: ignore[arg-type]
    for callback in (learning, steps, *([samples(trainer, told, steps)] if samples else [])):
        trainer.add_callback(callback)
    trainer.train()
    return told
