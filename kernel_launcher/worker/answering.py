"""How a model is asked, at the end of a job and while it trains: the prompt as it reads it, and where it stops."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.fsdp import FSDPModule

from kernel_launcher.errors import VeriError
from kernel_launcher.worker.codec import end_of_turn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Prompt = str | list[dict[str, str]]


@contextmanager
def aside(model: Any) -> Iterator[None]:
    """Use a model without training it: no dropout, no gradients; it is left as it was found."""
    was_training = model.training
    model.eval()
    try:
        # Not inference_mode: what FSDP2 gathers in it cannot be used in a backward pass later.
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)
        for module in model.modules():
            if isinstance(module, FSDPModule):  # stage 2 lets go of what it gathered in a backward pass only
                module.reshard()


def rendered(prompt: Prompt, tokenizer: Any) -> str:
    """The text that a prompt is to the model: a user's turn in its chat template, or as it is where it has none.

    Raises:
        VeriError: A prompt is a list of messages, and the model has no chat template.
    """
    if not tokenizer.chat_template:
        if isinstance(prompt, str):
            return prompt
        raise VeriError("generate_failed", "the model has no chat template: give each prompt as plain text.")
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def tokens_of(text: str, tokenizer: Any) -> list[int]:
    """The token ids of a rendered prompt."""
    # A chat template writes the special tokens itself.
    ids: list[int] = tokenizer(text, add_special_tokens=not tokenizer.chat_template)["input_ids"]
    return ids


def stop_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Where an answer ends: the model's own end tokens, and the token with which its chat template ends a turn."""
    own = model.generation_config.eos_token_id
    found = set(own) if isinstance(own, list) else {own}
    found |= {tokenizer.eos_token_id, end_of_turn(tokenizer)}
    return sorted(found - {None})


def greedy(max_new_tokens: int) -> dict[str, Any]:
    """The likeliest token each time."""
    # What a model's own generation config says about sampling has no meaning without it, and draws a warning each.
    return {"max_new_tokens": max_new_tokens, "do_sample": False, "temperature": None, "top_p": None, "top_k": None}


def padded_left(rows: Sequence[Sequence[int]], pad: int) -> dict[str, Any]:
    """Prompts of different lengths as ``input_ids`` and ``attention_mask``, which end together."""
    longest = max(map(len, rows))
    ids = torch.tensor([[pad] * (longest - len(row)) + list(row) for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}
