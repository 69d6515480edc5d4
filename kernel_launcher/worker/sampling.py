"""Answers of the model while it trains: before the first step, every few steps, and after the last.

Training does not notice: the answers are the likeliest tokens, drawn with no random number, and the time that they
take is taken off the clock of the steps. It is bounded, since other ranks may be waiting: 64 tokens an answer and ten
seconds a round, and between the first round and the last only while all of them took less than 5 % of the run.

Where each rank holds all weights, rank 0 answers alone. Sharded weights are gathered layer by layer, so there every
rank goes through the same rounds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
from transformers import TrainerCallback

from kernel_launcher.data.rows.examples import Message
from kernel_launcher.data.rows.faults import DataRefusal
from kernel_launcher.data.training.encoding import most_tokens
from kernel_launcher.secrets import redact
from kernel_launcher.worker.answering import aside, greedy, padded_left, stop_tokens, tokens_of
from kernel_launcher.worker.codec import TransformersCodec
from kernel_launcher.worker.errors import ConfigError
from kernel_launcher.worker.failures import code_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kernel_launcher.planner import Plan
    from kernel_launcher.worker.reporter import Reporter

NEW_TOKENS = 64
ROUND_SECONDS = 10.0
MOST_OF_THE_RUN = 0.05
_ROUNDS_BETWEEN = 3
_OWN_PROMPTS = 3
_LONGEST_OWN_PROMPT = 512
_ROWS_LOOKED_AT = 1000
# Plain text has no prompt: this much of its beginning is one.
_BEGINNING = 16


@dataclass(frozen=True, slots=True)
class SamplePrompt:
    """What is asked in each round.

    Attributes:
        text: As it is shown.
        ids: As the model reads it.
        trained_in: The optimizer step whose batch has the row it is from, in the first epoch; None for a user's own.
    """

    text: str
    ids: tuple[int, ...]
    trained_in: int | None = None

    def to_json(self, step: int) -> dict[str, Any]:
        """As a ``samples`` event after so many steps has it."""
        if self.trained_in is None:
            return {"prompt": self.text}
        return {"prompt": self.text, "held_out": step < self.trained_in}


def choose_prompts(plan: Plan, rows: Any, tokenizer: Any) -> list[SamplePrompt]:
    """The user's prompts, or those of the three rows that training comes to last; none, if no row has a short one.

    No row is kept out of training for it: that would be another run. The last ones are unseen until the end of the
    first epoch, which is where most runs end.

    Raises:
        ConfigError: The chat template refuses a prompt of the user's, or it is so long that neither the memory of the
            plan nor the seconds of a round are meant for it.
    """
    codec = TransformersCodec(tokenizer)
    if plan.method.sample_prompts:
        most = max(_LONGEST_OWN_PROMPT, most_tokens(plan.method))
        return [_asked(prompt, codec, tokenizer, most) for prompt in plan.method.sample_prompts]
    frame = _frame(codec)
    found: dict[tuple[int, ...], SamplePrompt] = {}
    for trained_in, ids in islice(_last_prompts(plan, rows), _ROWS_LOOKED_AT):
        if 0 < len(ids) <= _LONGEST_OWN_PROMPT:
            found[ids] = SamplePrompt(_shown(ids, tokenizer, frame), ids, trained_in)
        if len(found) == _OWN_PROMPTS:
            break
    return list(found.values())


def _last_prompts(plan: Plan, rows: Any) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Of each row the step that trains it, and its prompt; the last row of the first epoch first."""
    # As accelerate's sampler shuffles them.
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(plan.method.seed))
    for place in reversed(range(len(order))):
        yield place // (plan.method.global_batch_size or 1) + 1, _prompt_of(rows[int(order[place])])


def _prompt_of(row: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """What stands before the first trained token; of a row that is trained as a whole, its beginning."""
    if "prompt_ids" in row:
        return tuple(row["prompt_ids"])
    ids, labels = row["input_ids"], row["labels"]
    if "lengths" in row:  # of a packed sequence, its first row
        ids, labels = ids[: row["lengths"][0]], labels[: row["lengths"][0]]
    first = next((place for place, label in enumerate(labels) if place and label >= 0), 0)
    return tuple(ids[: first if first > 1 else _BEGINNING])


def _asked(prompt: str, codec: TransformersCodec, tokenizer: Any, most: int) -> SamplePrompt:
    try:
        text = codec.render((Message("user", prompt),), add_generation_prompt=True) if codec.chat else prompt
    except DataRefusal as refusal:
        raise ConfigError(f"method.sample_prompts: {refusal}", "Use other prompts, or none.") from None
    ids = tuple(tokens_of(text, tokenizer))
    if len(ids) > most:
        reason = f"a prompt has {len(ids):,} tokens, and {most:,} are the most"
        raise ConfigError(f"method.sample_prompts: {reason}.", "Shorten it, or ask it after the run.")
    return SamplePrompt(prompt, ids)


def _frame(codec: TransformersCodec) -> list[str]:
    """What the chat template writes before and after a user's only turn."""
    try:
        return codec.render((Message("user", "\0"),), add_generation_prompt=True).split("\0") if codec.chat else []
    except DataRefusal:
        return []


def _shown(ids: tuple[int, ...], tokenizer: Any, frame: Sequence[str]) -> str:
    """A user's only turn without the template around it; anything else whole."""
    text = str(tokenizer.decode(ids))
    if len(frame) == 2 and text.startswith(frame[0]) and text.endswith(frame[1]):
        return text[len(frame[0]) : len(text) - len(frame[1])]
    return str(tokenizer.decode(ids, skip_special_tokens=True)).strip()


class Samples(TrainerCallback):
    """Lets the model answer the same prompts again and again.

    Args:
        prompts: What it is asked.
        tokenizer: With a pad token.
        every: Steps between rounds; None is a quarter of the run.
        reporter: Told of the answers, by rank 0.
        off_the_clock: Told how many seconds were not training.
    """

    def __init__(
        self,
        prompts: Sequence[SamplePrompt],
        tokenizer: Any,
        every: int | None,
        reporter: Reporter,
        off_the_clock: Callable[[float], None],
    ) -> None:
        self._prompts = prompts
        self._tokenizer = tokenizer
        self._every = every
        self._reporter = reporter
        self._off_the_clock = off_the_clock
        self._began = self._spent = self._last = 0.0
        self._given_up = False

    def on_train_begin(self, _: Any, state: Any, *__: Any, model: Any, **___: Any) -> None:
        """The model as it was."""
        # PEFT's generate goes past the root, which must gather the embedding.
        register_fsdp_forward_method(model, "generate")
        self._every = self._every or -(-state.max_steps // (_ROUNDS_BETWEEN + 1))
        self._round(state, model)
        self._began = time.monotonic()

    def on_log(self, _: Any, state: Any, *__: Any, model: Any, logs: Mapping[str, float], **___: Any) -> None:
        """After a step that is due, once it has been reported."""
        if "loss" not in logs or state.global_step % self._every or state.global_step == state.max_steps:
            return
        if not self._takes_part(state, model):
            return
        share = (self._spent + self._last) / max(time.monotonic() - self._began, 1e-9)
        if _as_the_first(share <= MOST_OF_THE_RUN, model):
            self._round(state, model)
        else:
            reason = f"samples would have taken {share:.0%} of the run so far, and {MOST_OF_THE_RUN:.0%} is the most"
            self._report(state, [], skipped=reason)

    def on_train_end(self, _: Any, state: Any, *__: Any, model: Any, **___: Any) -> None:
        """The model as it became."""
        self._round(state, model)

    def _takes_part(self, state: Any, model: Any) -> bool:
        return not self._given_up and (state.is_world_process_zero or isinstance(model, FSDPModule))

    def _round(self, state: Any, model: Any) -> None:
        if not self._takes_part(state, model):
            return
        began = time.monotonic()
        try:
            answers = answer(model, self._tokenizer, self._prompts)
        except Exception as error:
            # Whatever a model's generation code raises, training can go on without it; not so where other ranks may
            # be in the middle of it.
            if isinstance(model, FSDPModule) and code_of(error):
                raise
            self._give_up(state, error)
            return
        self._last = time.monotonic() - began
        if state.global_step:
            self._spent += self._last
        self._off_the_clock(self._last)
        self._report(state, answers, seconds=self._last)

    def _give_up(self, state: Any, error: Exception) -> None:
        self._given_up = True
        if state.is_world_process_zero:
            reason = redact(f"{type(error).__name__}: {error}")
            self._reporter.warn(f"no samples from step {state.global_step} on: the model cannot answer ({reason})")

    def _report(self, state: Any, answers: list[dict[str, Any]], **more: Any) -> None:
        if state.is_world_process_zero:
            step = state.global_step
            found = [prompt.to_json(step) | said for prompt, said in zip(self._prompts, answers, strict=False)]
            self._reporter.put("samples", step=step, samples=found, **more)


def answer(model: Any, tokenizer: Any, prompts: Sequence[SamplePrompt]) -> list[dict[str, Any]]:
    """The likeliest answers: ``text``, ``tokens``, and whether it is ``finished`` or was broken off.

    Of a sharded model every rank must be here at once, with the same prompts; it is left as it was found.
    """
    device = next(model.parameters()).device
    devices = [device] if device.type == "cuda" else []
    stops = stop_tokens(model, tokenizer)
    inputs = padded_left([prompt.ids for prompt in prompts], tokenizer.pad_token_id)
    with aside(model), torch.random.fork_rng(devices):  # code that a model ships may draw numbers
        tokens = model.generate(
            **{name: tensor.to(device) for name, tensor in inputs.items()},
            **greedy(NEW_TOKENS),
            max_time=ROUND_SECONDS,
            use_cache=True,
            eos_token_id=stops,
            pad_token_id=tokenizer.pad_token_id,
            synced_gpus=isinstance(model, FSDPModule),
        )
    new = tokens[:, inputs["input_ids"].shape[1] :].tolist()
    return [_said(row, stops, tokenizer) for row in new]


def _said(row: list[int], stops: list[int], tokenizer: Any) -> dict[str, Any]:
    end = next((place for place, token in enumerate(row) if token in stops), None)
    said = row[:end]
    text = str(tokenizer.decode(said, skip_special_tokens=True))
    return {"text": text, "tokens": len(said), "finished": end is not None}


def _as_the_first(decision: bool, model: Any) -> bool:
    """What rank 0 decided, where all of them must do the same."""
    if not isinstance(model, FSDPModule):
        return decision
    flag = torch.tensor(int(decision), device="cpu" if dist.get_backend() == "gloo" else "cuda")
    dist.broadcast(flag, src=0)
    return bool(flag)
