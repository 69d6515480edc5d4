"""Which tokens are trained, seen through a tokenizer of words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_launcher.data.chat.mark import Marker
from kernel_launcher.data.rows.examples import Message, Messages, PromptCompletion, Text
from kernel_launcher.data.rows.faults import DataRefusal
from kernel_launcher.data.training.encode import IGNORED, encode_example
from kernel_launcher.errors import InvalidRequest
from tests.unit.data_toys import ClosingCodec, ForgetfulCodec, SystemlessCodec, ToyCodec
from tests.unit.lint_planted import alpaca, deepseek, gemma, llama3, mistral, zephyr
from tests.unit.lint_toys import chatml


def chat(*turns, context=0):
    return Messages(tuple(Message(*turn) for turn in turns), context)


ONE = chat(("user", "Why now"), ("assistant", "So it is"))
TWO = chat(("system", "Be"), ("user", "One"), ("assistant", "First"), ("user", "Two"), ("assistant", "Second"))


def trained(example, codec=None, max_length=1000, loss_on="answers"):
    """The trained tokens, one string for each run of them."""
    codec = codec or ToyCodec()
    row = encode_example(example, codec, max_length=max_length, loss_on=loss_on)
    assert len(row.input_ids) == len(row.labels)
    assert all(label in (IGNORED, token) for token, label in zip(row.input_ids, row.labels, strict=True))
    words = ["" if label == IGNORED else codec.words([label])[0] for label in row.labels]
    runs = "".join(word or "\0" for word in words).split("\0")
    return [run for run in runs if run]


def test_an_answer_is_trained_with_its_end_of_turn():
    """Neither the header before it nor the line end after it is."""
    assert ["So it is<|end|>"] == trained(ONE)


def test_every_answer_of_a_conversation_is_trained():
    assert ["First<|end|>", "Second<|end|>"] == trained(TWO)


def test_the_last_answer_alone_is_trained_where_asked():
    assert ["Second<|end|>"] == trained(TWO, loss_on="last_answer")


def test_everything_is_trained_where_asked():
    assert ["<|user|>\nWhy now<|end|>\n<|assistant|>\nSo it is<|end|>\n"] == trained(ONE, loss_on="all")


@pytest.mark.parametrize("nothing", ["", " ", "\n\n"])
@pytest.mark.parametrize("codec", [chatml, llama3, mistral, gemma, zephyr, alpaca, deepseek])
def test_of_an_empty_answer_its_end_is_trained(codec, nothing):
    """Whatever the template: the model learns to stop at once, and no token of the prompt."""
    writes = codec()
    row = encode_example(chat(("user", "Why?"), ("assistant", nothing)), writes, max_length=100)
    answer = [token for token, label in zip(row.input_ids, row.labels, strict=True) if label != IGNORED]
    assert Marker(writes, "answers").stop_token == answer[-1]
    assert len(answer) <= 2 + len(nothing)


def test_of_an_empty_completion_its_end_is_trained():
    assert ["<|end|>"] == trained(PromptCompletion("Why now", ""))


def test_turns_that_were_given_are_not_learned():
    """The prompt of a row may be a conversation with answers in it."""
    assert ["Second<|end|>"] == trained(Messages(TWO.messages, context=4))


def test_tool_results_and_what_follows_the_answer_are_not_trained():
    example = chat(
        ("user", "a"), ("assistant", "look"), ("tool", "42"), ("assistant", "it is 42"), ("user", "thanks")
    )
    assert ["look<|end|>", "it is 42<|end|>"] == trained(example)


def test_a_conversation_may_open_with_the_assistant():
    """Chats with a greeting: nothing can be rendered before it, and it is an answer all the same."""
    example = chat(("assistant", "Welcome"), ("user", "Hi"), ("assistant", "Yes"))
    assert ["Welcome<|end|>", "Yes<|end|>"] == trained(example)


def test_white_space_of_an_answer_is_its_own():
    assert ["  yes \n\n<|end|>"] == trained(chat(("user", "a"), ("assistant", "  yes \n\n")))


def test_an_answer_that_repeats_the_template_is_found_at_its_place():
    example = chat(("user", "<|assistant|>\nyes<|end|>\n"), ("assistant", "<|assistant|>\nyes<|end|>\n"))
    assert ["<|assistant|>\nyes<|end|>\n<|end|>"] == trained(example)


def test_what_closes_the_whole_conversation_is_no_end_of_turn():
    """Phi writes another token after the last turn, and none after the others."""
    assert ["First<|end|>", "Second<|end|>"] == trained(TWO, ClosingCodec())


def test_a_template_that_forgets_is_refused_with_the_place_and_a_way_out():
    with pytest.raises(DataRefusal) as caught:
        trained(TWO, ForgetfulCodec())
    assert (
        "turn 3: the chat template writes 'sistant|>\\n<|think|>First<|end|>' where the conversation stops there, "
        "and 'sistant|>\\nFirst<|end|>\\n<|user|>\\nTwo<|en…' where it goes on, so nothing says which tokens are the "
        'answer. Give one row for each answer, set loss_on to "last_answer", or name another chat_template.'
    ) == str(caught.value)


def test_the_ways_out_of_a_forgetful_template_work():
    assert ["<|think|>Second<|end|>"] == trained(TWO, ForgetfulCodec(), loss_on="last_answer")
    assert ["<|think|>So it is<|end|>"] == trained(ONE, ForgetfulCodec())


def test_a_row_that_the_template_refuses_is_refused():
    with pytest.raises(DataRefusal, match="System role not supported"):
        trained(TWO, SystemlessCodec())
    assert ["So it is<|end|>"] == trained(ONE, SystemlessCodec())


def test_a_chat_without_a_chat_template_is_refused_with_two_ways_out():
    codec = ToyCodec()
    codec.chat = False
    with pytest.raises(
        InvalidRequest, match=r"no chat template. Name one, chat_template = .*, or give prompt and compl"
    ):
        trained(ONE, codec)
    assert ["yes<|end|>"] == trained(PromptCompletion("Why ", "yes"), codec)


def test_plain_text_is_trained_as_a_whole_and_ends():
    for loss_on in ("answers", "last_answer", "all"):
        assert ["Once upon<|end|>"] == trained(Text("Once upon"), loss_on=loss_on)


def test_a_completion_is_trained_with_the_end_of_text():
    example = PromptCompletion("Q a A", " b")
    assert [" b<|end|>"] == trained(example) == trained(example, loss_on="last_answer")
    assert ["Q a A b<|end|>"] == trained(example, loss_on="all")


def test_a_token_across_the_border_belongs_to_the_completion():
    """Left out of the loss, it would take the first letters of the answer with it."""
    assert ["because<|end|>"] == trained(PromptCompletion("why be", "cause"))


def test_neither_end_is_doubled():
    codec = ToyCodec()
    start = codec.encode(["<|start|>"])[0].ids[0]
    codec.bos = (start,)
    for text in ("a b", "<|start|>a b", "a b<|end|>", "<|start|>a b<|end|>"):
        row = encode_example(Text(text), codec, max_length=100)
        assert ["<|start|>", "a", " ", "b", "<|end|>"] == codec.words(row.input_ids)
    row = encode_example(PromptCompletion("a", " b"), codec, max_length=100)
    assert ["<|start|>", "a", " ", "b", "<|end|>"] == codec.words(row.input_ids)
    assert [IGNORED, IGNORED] == row.labels[:2]


def test_plain_text_without_an_end_token_is_refused():
    codec = ToyCodec()
    codec.eos = None
    with pytest.raises(InvalidRequest, match="no end-of-text token"):
        trained(Text("a"), codec)
    assert ["So it is<|end|>"] == trained(ONE, codec)


@pytest.mark.parametrize(
    ("max_length", "expected", "cut", "answer_cut"),
    [
        (100, ["So it is<|end|>"], False, False),
        (16, ["So it is<|end|>"], False, False),
        (15, ["So it is<|end|>"], True, False),
        (14, ["So it is"], True, True),
        (9, [], True, True),
    ],
)
def test_a_long_row_loses_its_end(max_length, expected, cut, answer_cut):
    codec = ToyCodec()
    row = encode_example(ONE, codec, max_length=max_length)
    assert (16, cut, answer_cut) == (row.length, row.cut, row.answer_cut)
    assert min(16, max_length) == len(row.input_ids)
    assert expected == trained(ONE, max_length=max_length)


def test_the_first_token_of_a_row_is_in_no_loss():
    assert 2 == encode_example(Text("a "), ToyCodec(), max_length=10).trained_tokens
    assert 0 == encode_example(Text("a "), ToyCodec(), max_length=1).trained_tokens


CONTENT = st.text(st.sampled_from("ab \n<|>é🙂"), min_size=1, max_size=6) | st.just("<|end|>")
TURN = st.tuples(st.sampled_from(["user", "assistant", "system", "tool"]), CONTENT)


@settings(deadline=None)
@given(
    turns=st.lists(TURN, min_size=1, max_size=6),
    loss_on=st.sampled_from(["answers", "last_answer"]),
    codec=st.sampled_from([ToyCodec, ClosingCodec]),
)
def test_the_trained_text_is_the_answers_and_nothing_else(turns, loss_on, codec):
    """Whatever the turns say and in whatever order they come."""
    answers = [f"{content}<|end|>" for role, content in turns if role == "assistant"]
    expected = answers[-1:] if loss_on == "last_answer" else answers
    assert expected == trained(chat(*turns), codec(), loss_on=loss_on)
