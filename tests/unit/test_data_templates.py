"""Chat templates of the field, token by token against a table that was made by hand."""

# ruff: noqa: RUF001 - DeepSeek writes its control tokens so

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from kernel_launcher.data.chat.controls import control_warning, split_controls
from kernel_launcher.data.chat.mark import Marker
from kernel_launcher.data.chat.template import Template
from kernel_launcher.data.chat.templates import template_names
from kernel_launcher.data.chat.tokenizer import TokenizersCodec
from kernel_launcher.data.rows.examples import Message, Messages
from kernel_launcher.data.rows.faults import DataRefusal
from kernel_launcher.data.show.tokens import token_rows
from kernel_launcher.data.training.encode import IGNORED, encode_example, label
from tests.unit.template_table import CONVERSATIONS, ONE, SYSTEM, TABLE, TWO
from tests.unit.template_toys import FACTS, codec, tokenizer_json

# Their last answer alone has a fixed place.
FORGETFUL = {"qwen3", "mistral3"}
# What follows the words of an answer, and what becomes of the words themselves.
ENDS = {
    "llama2": " </s>", "llama3": "<|eot_id|>", "gemma": "<end_of_turn>", "gemma2": "<end_of_turn>",
    "mistral": "</s>", "zephyr": "</s>", "alpaca": "</s>", "vicuna": "</s>", "phi3": "<|end|>",
    "deepseek": "<｜end▁of▁sentence｜>", "glm4": "<|user|>", "mistral3": "</s>",
}  # fmt: skip
STARTS = {"llama2": " ", "mistral": " ", "mistral3": " ", "vicuna": " ", "glm4": "\n"}
THOUGHTLESS = "<think>\n\n</think>\n\n"
TRIMMED = {"llama2", "llama3", "gemma", "gemma2"}


def chat(turns):
    return Messages(tuple(Message(*turn) for turn in turns))


def tokens_of(example, name, loss_on="answers", max_length=10_000):
    marked = Marker(codec(name), loss_on).mark(example)
    return token_rows(example, marked, codec(name).encode([marked.text])[0], codec(name), max_length)


def bracketed(tokens):
    """The text with each run of trained tokens in [[ ]]."""
    text, inside = "", False
    for token in tokens:
        if token.trained != inside:
            text += "]]" if inside else "[["
            inside = token.trained
        text += token.text
    return text + "]]" * inside


def test_every_template_is_in_the_table():
    assert set(TABLE) == {*template_names(), *(path.stem for path in FACTS.glob("*.jinja"))}
    assert len(TABLE) >= 14


@pytest.mark.parametrize("form", range(4), ids=["one", "two", "system one", "system two"])
@pytest.mark.parametrize("name", TABLE)
def test_exactly_the_tokens_of_the_table_are_trained(name, form):
    expected, turns = TABLE[name][form], CONVERSATIONS[form]
    if expected is None:
        with pytest.raises(DataRefusal):
            tokens_of(chat(turns), name)
    else:
        assert expected == bracketed(tokens_of(chat(turns), name))


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name].two or name == "qwen3"])
def test_the_last_answer_alone_has_a_place_in_every_template(name):
    """Also where the earlier ones are written in another way once the conversation goes on."""
    shown = bracketed(tokens_of(chat(TWO), name, "last_answer"))
    assert 1 == shown.count("[[")
    assert "So it is." in shown.partition("[[")[2].partition("]]")[0]


def test_what_has_no_fixed_place_is_refused_with_the_turn_and_the_ways_out():
    with pytest.raises(
        DataRefusal, match=r'turn 2: the chat template writes .*<think>.* set loss_on to "last_answer'
    ):
        tokens_of(chat(TWO), "qwen3")
    with pytest.raises(DataRefusal, match="turn 3: the chat template writes"):
        tokens_of(chat((SYSTEM, *TWO)), "mistral3")
    with pytest.raises(DataRefusal, match="System role not supported"):
        tokens_of(chat((SYSTEM, *ONE)), "gemma2")


def test_thoughts_in_the_last_answer_are_trained():
    turns = (*TWO[:3], ("assistant", "<think>\nHm.\n</think>\n\nSo it is."))
    shown = bracketed(tokens_of(chat(turns), "qwen3", "last_answer"))
    assert shown.endswith("<|im_start|>assistant\n[[<think>\nHm.\n</think>\n\nSo it is.<|im_end|>]]\n")


def test_tools_between_two_answers_nest_where_the_template_keeps_them():
    """Qwen3 drops thoughts at the next question only."""
    turns = (("user", "a"), ("assistant", "<think>\nb\n</think>\n\nlook"), ("tool", "42"), ("assistant", "it is 42"))
    shown = bracketed(tokens_of(chat(turns), "qwen3"))
    assert "[[<think>\nb\n</think>\n\nlook<|im_end|>]]\n<|im_start|>tool\n42" in shown
    assert shown.endswith("[[<think>\n\n</think>\n\nit is 42<|im_end|>]]\n")


def test_tags_that_fit_the_answers_are_needed():
    """One tag around two turns says nothing about either."""
    broken = "{% generation %}{{ messages | length }}{{ messages[-1].content }}{% endgeneration %}"
    one = TokenizersCodec(Tokenizer.from_str(tokenizer_json()), Template(broken, {}), None)
    with pytest.raises(DataRefusal, match="mark 1 places, and there are 2 assistant turns"):
        Marker(one, "answers").mark(chat(TWO))


def test_the_prompt_of_inference_is_what_stands_before_the_answer():
    for name, row in TABLE.items():
        expected = row.one.partition("[[")[0]
        assert expected == Marker(codec(name), "answers").inference_prompt(chat(ONE))


def test_each_token_has_the_role_of_who_said_it():
    tokens = tokens_of(chat((SYSTEM, *TWO)), "llama3")
    said = {}
    for token in tokens:
        if token.role:
            said[token.role] = said.get(token.role, "") + token.text
    assert {"system": "Be brief.", "user": "HiWhy?", "assistant": "Yes.So it is."} == said
    assert all(token.special == (token.text in codec("llama3").control) for token in tokens)


@pytest.mark.parametrize("name", TABLE)
def test_the_stop_token_is_the_last_that_is_trained(name):
    """Also where it is borrowed from the next turn."""
    trained = [token for token in tokens_of(chat(ONE), name) if token.trained]
    assert Marker(codec(name), "answers").stop_token == trained[-1].id
    assert trained[-1].special


def test_control_tokens_that_the_tokenizer_cuts_are_told():
    """ChatML for a base model that never saw it."""
    assert control_warning(codec("chatml")) is None
    tokenizer = Tokenizer.from_str(tokenizer_json())
    strange = "<|turn|>{{ messages[-1].role }}<sep>{{ messages[0].content }}</s>[X]"
    one = TokenizersCodec(tokenizer, Template(strange, {}), None)
    assert ("<|turn|>", "<sep>", "[X]") == split_controls(one)
    assert control_warning(one).startswith(
        "the chat template writes <|turn|>, <sep>, [X], which the model's tokenizer"
    )
    assert Marker(one, "answers").stop_token is None
    refusing = TokenizersCodec(tokenizer, Template("{{ raise_exception('no') }}", {}), None)
    assert control_warning(refusing) is None
    assert Marker(refusing, "answers").stop_token is None


# Control tokens that a turn says are text to some templates and ends to others; the linter tells them.
ANY = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12) | st.text("a b\n\t.<|>", min_size=1, max_size=8)
PLAIN = ANY.filter(lambda text: text.strip() and not any(token in text for token in codec("chatml").control))


@settings(deadline=None, max_examples=200)
@given(
    name=st.sampled_from(list(TABLE)),
    words=st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=3),
    system=st.none() | PLAIN,
    loss_on=st.sampled_from(["answers", "last_answer", "all"]),
)
def test_the_trained_text_is_exactly_the_answers_with_their_end(name, words, system, loss_on):
    """Whatever is said, in every template, and to the token."""
    system = None if name == "gemma2" else system
    loss_on = "last_answer" if name in FORGETFUL and loss_on == "answers" else loss_on
    turns = [("system", system)] * (system is not None)
    for question, answer in words:
        turns += [("user", question), ("assistant", answer)]
    marked = Marker(codec(name), loss_on).mark(chat(turns))
    answers = [written(answer, name, last=at == len(words)) for at, (_, answer) in enumerate(words, 1)]
    expected = {"all": [marked.text], "answers": answers, "last_answer": answers[-1:]}[loss_on]
    assert expected == [marked.text[start:end] for start, end in marked.spans]
    tokens = codec(name).encode([marked.text])[0]
    row = label(marked, tokens, codec(name), 10_000)
    inside = [any(start < last and first < end for first, last in marked.spans) for start, end in tokens.offsets]
    assert inside == [token != IGNORED for token in row.labels]
    assert row == encode_example(chat(turns), codec(name), max_length=10_000, loss_on=loss_on)


def written(answer, name, *, last):
    """An answer as the template has it, with its end of turn."""
    if name in ("qwen3", "tagged"):
        answer = THOUGHTLESS * last + answer.lstrip("\n")
    if name in TRIMMED:
        answer = answer.strip()
    return STARTS.get(name, "") + answer + ENDS.get(name, "<|im_end|>")
