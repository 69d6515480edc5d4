"""Answers of the model while it trains: which prompts, when, and that training does not notice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.small_runs import Told, small_plan, small_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Sample

pytestmark = pytest.mark.torch
COUNT = 12


@pytest.fixture(autouse=True)
def _short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny model has little to say."""
    from kernel_launcher.worker import sampling

    monkeypatch.setattr(sampling, "NEW_TOKENS", 8)


@pytest.fixture(scope="module")
def tokenizer(sample: Sample) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(sample.tiny)


@pytest.fixture(scope="module")
def rows(tokenizer: Any) -> list[dict[str, list[int]]]:
    """Chats that ask for the number of the row, encoded as for training."""
    from kernel_launcher.data.rows.examples import Message, Messages
    from kernel_launcher.data.training.encode import encode_example
    from kernel_launcher.worker.codec import TransformersCodec

    codec = TransformersCodec(tokenizer)
    chats = [Messages((Message("user", f"Number {i}?"), Message("assistant", "Yes."))) for i in range(COUNT)]
    encoded = [encode_example(chat, codec, max_length=64) for chat in chats]
    return [{"input_ids": row.input_ids, "labels": row.labels} for row in encoded]


def sampler(**options: Any) -> Callable[[Any, Told, Any], Any]:
    """Makes the callback as a run does."""
    from kernel_launcher.worker.sampling import Samples, choose_prompts

    def make(trainer: Any, told: Told, steps: Any) -> Any:
        tokenizer = trainer.processing_class
        prompts = choose_prompts(trainer.plan, trainer.train_dataset, tokenizer)
        every = trainer.plan.method.sample_every
        return Samples(prompts, tokenizer, every, told, options.get("clock", steps.off_the_clock))  # type: ignore[arg-type]

    return make


@pytest.fixture
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the share of time is anything."""
    from kernel_launcher.worker import sampling

    monkeypatch.setattr(sampling, "MOST_OF_THE_RUN", 1e9)


@pytest.mark.usefixtures("unbounded")
@pytest.mark.parametrize("lora", [{}, {"lora_rank": 4, "lora_dropout": 0.1}])
def test_a_run_with_samples_has_the_losses_of_one_without(
    sample: Sample, tmp_path: Path, rows: list[Any], lora: dict[str, Any]
) -> None:
    """To the last digit, dropout and all. Rounds: at the start, after each fourth of the steps, at the end."""
    plan = small_plan(max_steps=6, micro_batch_size=2, learning_rate=0.01, **lora)
    watched = small_run(sample, tmp_path, rows, plan, samples=sampler())
    alone = small_run(sample, tmp_path, rows, plan)
    assert alone.metrics("loss") == watched.metrics("loss")
    assert alone.metrics("grad_norm") == watched.metrics("grad_norm")
    rounds = watched.of("samples")
    assert [0, 2, 4, 6] == [fields["step"] for fields in rounds]
    assert {3} == {len(fields["samples"]) for fields in rounds}
    assert rounds[0]["samples"] != rounds[-1]["samples"]
    assert [] == watched.of("warning")


@pytest.mark.usefixtures("unbounded")
def test_the_prompts_are_of_the_rows_that_training_comes_to_last(
    sample: Sample, tmp_path: Path, rows: list[Any], tokenizer: Any
) -> None:
    """Found out from the batches that the model was given. Until then they are held out, and it is said."""
    plan = small_plan(num_epochs=1.0, micro_batch_size=2, sample_every=1)
    seen: list[str] = []

    def watch(trainer: Any, told: Told, steps: Any) -> Any:
        step = trainer.training_step

        def training_step(model: Any, inputs: Any, *args: Any) -> Any:
            seen.append(tokenizer.batch_decode(inputs["input_ids"]))
            return step(model, inputs, *args)

        trainer.training_step = training_step
        return sampler()(trainer, told, steps)

    told = small_run(sample, tmp_path, rows, plan, samples=watch)
    rounds = told.of("samples")
    assert list(range(7)) == [fields["step"] for fields in rounds]
    for fields in rounds:
        trained_on = [text for batch in seen[: fields["step"]] for text in batch]
        for answer in fields["samples"]:
            assert answer["prompt"].startswith("Number ")
            assert answer["held_out"] != any(answer["prompt"] in text for text in trained_on)
    last = [text for batch in seen[-2:] for text in batch]
    assert all(any(answer["prompt"] in text for text in last) for answer in rounds[0]["samples"])


def test_prompts_of_ones_own_go_through_the_template(tokenizer: Any) -> None:
    """As Job.generate() sends them; of no row, so that nothing is said of that."""
    from kernel_launcher.worker.sampling import choose_prompts

    [prompt] = choose_prompts(small_plan(sample_prompts=["What is abs?"]), [], tokenizer)
    expected = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is abs?"}], add_generation_prompt=True
    )
    assert expected["input_ids"] == list(prompt.ids)
    assert {"prompt": "What is abs?"} == prompt.to_json(5)


def test_a_prompt_of_ones_own_is_no_longer_than_what_is_planned_for(tokenizer: Any) -> None:
    """Tens of thousands of tokens would take all memory, and hold up the other ranks."""
    from kernel_launcher.worker.errors import ConfigError
    from kernel_launcher.worker.sampling import choose_prompts

    long = ["why so? " * 300]
    with pytest.raises(ConfigError, match=r"method.sample_prompts: a prompt has .* tokens, and 512 are the most"):
        choose_prompts(small_plan(sample_prompts=long, max_seq_length=64), [], tokenizer)
    assert 1 == len(choose_prompts(small_plan(sample_prompts=long, max_seq_length=2048), [], tokenizer))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"input_ids": [1, 2, 3, 4], "labels": [-100, -100, 3, 4]}, (1, 2)),
        ({"input_ids": [1, 2, 3, 4], "labels": [1, 2, 3, 4]}, (1, 2, 3, 4)),
        ({"input_ids": list(range(40)), "labels": list(range(40))}, tuple(range(16))),
        ({"input_ids": [1, 2, 3, 4], "labels": [-100, 2, -100, 4], "lengths": [2, 2]}, (1, 2)),
        ({"prompt_ids": [1, 2], "chosen_ids": [3], "rejected_ids": [4]}, (1, 2)),
    ],
)
def test_a_rows_prompt_is_what_stands_before_its_answer(row: dict[str, list[int]], expected: tuple[int, ...]) -> None:
    """Plain text has none: its beginning is one. Of packed rows it is the first row's."""
    from kernel_launcher.worker.sampling import _prompt_of

    assert expected == _prompt_of(row)


def test_a_long_prompt_of_a_row_is_left_out(tokenizer: Any) -> None:
    """It would cost more memory and time than it tells."""
    from kernel_launcher.worker.sampling import choose_prompts

    long = {"input_ids": [9] * 600, "labels": [-100] * 599 + [9]}
    assert [] == choose_prompts(small_plan(), [long] * 4, tokenizer)
    short = {"input_ids": [9, 8], "labels": [-100, 8]}
    assert 1 == len(choose_prompts(small_plan(), [long, short, long, short], tokenizer))


class TestBudget:
    def test_a_round_that_would_take_too_much_of_the_run_is_skipped(
        self, sample: Sample, tmp_path: Path, rows: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those at the start and at the end are made all the same; the others say why they are not."""
        from kernel_launcher.worker import sampling

        monkeypatch.setattr(sampling, "MOST_OF_THE_RUN", 0.0)
        plan = small_plan(max_steps=4, micro_batch_size=2, sample_every=1)
        rounds = small_run(sample, tmp_path, rows, plan, samples=sampler()).of("samples")
        assert [3, 0, 0, 0, 3] == [len(fields["samples"]) for fields in rounds]
        assert ["skipped" in fields for fields in rounds] == [False, True, True, True, False]
        assert "and 0% is the most" in rounds[1]["skipped"]

    def test_its_time_is_not_the_steps(self, sample: Sample, tmp_path: Path, rows: list[Any]) -> None:
        """What is taken off the clock is what was measured."""
        off: list[float] = []
        plan = small_plan(max_steps=2, micro_batch_size=2, sample_every=2)
        rounds = small_run(sample, tmp_path, rows, plan, samples=sampler(clock=off.append)).of("samples")
        assert off == [fields["seconds"] for fields in rounds]


@pytest.mark.usefixtures("unbounded")
def test_a_model_that_cannot_answer_is_trained_all_the_same(
    sample: Sample, tmp_path: Path, rows: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its own code raises: one warning, no more rounds, and the run goes to its end."""

    def fails(*_: Any, **__: Any) -> None:
        raise NotImplementedError("this model has no cache, the token is hf_" + "a" * 34)

    def make(trainer: Any, told: Told, steps: Any) -> Any:
        trainer.model.generate = fails
        return sampler()(trainer, told, steps)

    told = small_run(sample, tmp_path, rows, small_plan(max_steps=4, micro_batch_size=2), samples=make)
    [warning] = told.of("warning")
    assert "no samples from step 0 on" in warning["message"]
    assert "NotImplementedError" in warning["message"]
    assert "hf_aaaa" not in warning["message"]
    assert [] == told.of("samples")
    assert 4 == len(told.of("step"))


class TestAnswer:
    def test_each_prompt_is_answered_as_if_it_were_alone(self, sample: Sample, tokenizer: Any) -> None:
        """Prompts of different lengths share a batch. The model is left in training, with its random numbers."""
        import torch
        from transformers import AutoModelForCausalLM

        from kernel_launcher.worker.sampling import answer, choose_prompts

        model = AutoModelForCausalLM.from_pretrained(sample.tiny)

        texts = ["What?", "What does the function `json.dumps` do, and when is it used?"]
        prompts = choose_prompts(small_plan(sample_prompts=texts), [], tokenizer)
        model.train()
        before = torch.get_rng_state()
        together = answer(model, tokenizer, prompts)
        assert [answer(model, tokenizer, [prompt])[0] for prompt in prompts] == together
        assert model.training
        assert torch.equal(before, torch.get_rng_state())

    def test_an_answer_ends_with_the_models_end_or_the_turns(self, tokenizer: Any) -> None:
        """A base model's own end is not that of the chat template that it is trained with."""
        from kernel_launcher.worker.answering import stop_tokens

        turn = tokenizer.convert_tokens_to_ids("<|im_end|>")
        other = tokenizer.convert_tokens_to_ids("<|endoftext|>")
        asked = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=other))
        assert {turn, other} <= set(stop_tokens(asked, tokenizer))
        asked.generation_config.eos_token_id = [other, 5]
        assert {turn, other, 5} <= set(stop_tokens(asked, tokenizer))

    def test_what_was_said_until_the_end(self, tokenizer: Any) -> None:
        """Finished with an end token, broken off without one."""
        from kernel_launcher.worker.sampling import _said

        yes = tokenizer("Yes.")["input_ids"]
        end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        assert {"text": "Yes.", "tokens": len(yes), "finished": True} == _said([*yes, end, 9, 9], [end], tokenizer)
        assert {"text": "Yes.", "tokens": len(yes), "finished": False} == _said(yes, [end], tokenizer)
