"""The story of one rank: find the base, prepare the rows, load, train, save."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from transformers import PrinterCallback

from kernel_launcher.data.lint import ModelTokens
from kernel_launcher.worker import group
from kernel_launcher.worker.adapter import lora_config, name_base
from kernel_launcher.worker.artifact import save_final
from kernel_launcher.worker.base import Base, choose_pad_token, load_tokenizer
from kernel_launcher.worker.codec import stop_at_end_of_turn
from kernel_launcher.worker.dpo import dpo_trainer
from kernel_launcher.worker.learning import Learning
from kernel_launcher.worker.memory import gpu_memory
from kernel_launcher.worker.models import Models
from kernel_launcher.worker.packing import check_packing
from kernel_launcher.worker.proof import Proof
from kernel_launcher.worker.rows import open_rows, prepare_rows, wait_for_rows
from kernel_launcher.worker.sampling import Samples, choose_prompts
from kernel_launcher.worker.sft import sft_trainer
from kernel_launcher.worker.steps import StepReporter
from kernel_launcher.worker.unused import look_for_unused
from kernel_launcher.worker.waiting import wait_for_first_rank

if TYPE_CHECKING:
    from kernel_launcher.worker.assignment import Assignment
    from kernel_launcher.worker.reporter import Reporter


def train(assignment: Assignment, reporter: Reporter) -> None:
    """Do one rank's part of a job; whatever goes wrong is raised.

    The ranks meet only once rank 0 holds the weights and all have the rows: until then nothing can time out.
    """
    rank, plan = assignment.rank, assignment.plan
    device = group.choose_device(plan, rank)
    if device.type == "cuda":
        reporter.memory = partial(gpu_memory, device)

    reporter.enter("load")
    base = Base.find(assignment, reporter)
    tokenizer = load_tokenizer(base, plan.method.chat_template)

    # First the rows: where they are refused, no weights have been loaded, and no GPU holds any.
    reporter.enter("tokenize")
    chats = rank.is_first and prepare_rows(assignment, tokenizer, ModelTokens.of(base.folder), reporter)
    wait_for_rows(assignment)

    reporter.enter("load")
    models = Models.read(base, plan, rank, device)
    untouched = copy.deepcopy((models.policy.config, models.policy.generation_config))
    warn = reporter.warn if rank.is_first else _say_nothing
    adapter = lora_config(models.policy, plan.method, warn)
    vocabulary = models.policy.get_input_embeddings().num_embeddings
    rows = open_rows(assignment, vocabulary)
    tokenizer.pad_token = choose_pad_token(tokenizer)

    _meet(assignment)
    group.join(plan, rank, device)
    trainer = _make_trainer(assignment, models, tokenizer=tokenizer, rows=rows, adapter=adapter)
    if adapter is not None:
        name_base(trainer.model, base)
    models.place(trainer.model, adapter)
    if plan.world_size > 1 and not plan.method.zero_stage:
        look_for_unused(trainer, device, warn)
    if plan.method.packing:
        check_packing(trainer.model, vocabulary, device)
    for callback in _callbacks(assignment, trainer, models, reporter):
        trainer.add_callback(callback)
    trainer.train()

    reporter.enter("final")
    trained = models.take_back(trainer.model, keep=rank.is_first)
    group.leave()
    if rank.is_first:
        template = tokenizer.chat_template if chats else None
        reporter.put("artifact", **_save(assignment, base, template, trained, untouched))
    else:
        wait_for_first_rank(assignment.run.final, assignment)


def _save(
    assignment: Assignment, base: Base, template: str | None, trained: Any, untouched: tuple[Any, Any]
) -> dict[str, Any]:
    """Leave the final model as its base was, but for its weights, and the chat template of chats with its stop."""
    config, generation_config = untouched
    tokenizer = load_tokenizer(base)
    stops_anew = False
    if template is not None:
        tokenizer.chat_template = template
        stops_anew = stop_at_end_of_turn(generation_config, tokenizer)
    return save_final(
        assignment.run,
        model=trained,
        tokenizer=tokenizer,
        config=config,
        generation_config=generation_config,
        stops_anew=stops_anew,
        method=assignment.plan.method,
        trust_remote_code=base.trust_remote_code,
    )


def _meet(assignment: Assignment) -> None:
    """Return once rank 0 holds the weights: reading them may take longer than a process group waits."""
    ready = assignment.run.rank(0, assignment.rank.attempt).ready
    if assignment.rank.is_first:
        ready.touch()
    else:
        wait_for_first_rank(ready, assignment)


def _make_trainer(assignment: Assignment, models: Models, *, tokenizer: Any, rows: Any, adapter: Any) -> Any:
    """The trainer of one rank, which says nothing of its own."""
    plan = assignment.plan
    common: dict[str, Any] = {
        "output_dir": str(assignment.run.root),
        "model": models.policy,
        "train_dataset": rows,
        "processing_class": tokenizer,
        "peft_config": adapter,
    }
    if plan.method.type == "dpo":
        trainer: Any = dpo_trainer(plan, reference=models.reference(), **common)
    else:
        trainer = sft_trainer(plan, **common)
    trainer.remove_callback(PrinterCallback)
    return trainer


def _callbacks(assignment: Assignment, trainer: Any, models: Models, reporter: Reporter) -> list[Any]:
    """What looks on, in the order in which it is asked."""
    method = assignment.plan.method
    learning = Learning(reporter.warn)
    steps = StepReporter(trainer.tokens, trainer.own_losses, reporter, lambda: learning.metrics)
    found = [Proof(assignment.plan, models.precision, reporter), learning, steps]
    if method.sample_every != 0:
        tokenizer = trainer.processing_class
        prompts = choose_prompts(assignment.plan, trainer.train_dataset, tokenizer)
        if prompts:
            found.append(Samples(prompts, tokenizer, method.sample_every, reporter, steps.off_the_clock))
    return found


def _say_nothing(_: str) -> None:
    """Where rank 0 says it already."""
