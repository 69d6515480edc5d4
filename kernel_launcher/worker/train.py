"""The story of one rank: find the base, prepare the rows, load, train, save."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING

from kernel_launcher.data.lint import ModelTokens
from kernel_launcher.worker import group
from kernel_launcher.worker.adapter import lora_config, name_base
from kernel_launcher.worker.artifact import save_final
from kernel_launcher.worker.base import Base, choose_pad_token, load_model, load_tokenizer
from kernel_launcher.worker.codec import stop_at_end_of_turn
from kernel_launcher.worker.memory import gpu_memory
from kernel_launcher.worker.rows import open_rows, prepare_rows, wait_for_rows
from kernel_launcher.worker.sft import make_trainer
from kernel_launcher.worker.waiting import wait_for_first_rank

if TYPE_CHECKING:
    from kernel_launcher.worker.assignment import Assignment
    from kernel_launcher.worker.reporter import Reporter


def train(assignment: Assignment, reporter: Reporter) -> None:
    """Do one rank's part of a job; whatever goes wrong is raised.

    The ranks meet only once each of them holds the model and the rows: until then nothing can time out.
    """
    run, rank, plan = assignment.run, assignment.rank, assignment.plan
    device = group.choose_device(plan, rank)
    if device.type == "cuda":
        reporter.memory = partial(gpu_memory, device)

    reporter.enter("load")
    base = Base.find(assignment, reporter)
    tokenizer = load_tokenizer(base, plan.method.chat_template)
    template = tokenizer.chat_template

    # First the rows: where they are refused, no weights have been loaded, and no GPU holds any.
    reporter.enter("tokenize")
    if rank.is_first:
        prepare_rows(assignment, tokenizer, ModelTokens.of(base.folder), reporter)
    wait_for_rows(assignment)

    reporter.enter("load")
    model = load_model(base, plan.method, device)
    untouched = copy.deepcopy((model.config, model.generation_config))
    adapter = lora_config(model, plan.method, warn=reporter.warn if rank.is_first else _say_nothing)
    rows = open_rows(assignment, model.get_input_embeddings().num_embeddings)
    tokenizer.pad_token = choose_pad_token(tokenizer)

    group.join(plan, rank, device)
    trainer = make_trainer(
        assignment, model=model, tokenizer=tokenizer, rows=rows, adapter=adapter, reporter=reporter
    )
    if adapter is not None:
        name_base(trainer.model, base)
    trainer.train()
    group.leave()

    reporter.enter("final")
    if not rank.is_first:
        wait_for_first_rank(run.final, assignment)
        return
    config, generation_config = untouched
    tokenizer = load_tokenizer(base)
    if plan.method.chat_template is not None:
        tokenizer.chat_template = template
        stop_at_end_of_turn(generation_config, tokenizer)
    artifact = save_final(
        run,
        model=trainer.model,
        tokenizer=tokenizer,
        config=config,
        generation_config=generation_config,
        method=plan.method,
        trust_remote_code=base.trust_remote_code,
    )
    reporter.put("artifact", **artifact)


def _say_nothing(_: str) -> None:
    """Where rank 0 says it already."""
