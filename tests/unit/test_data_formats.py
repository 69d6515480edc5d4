"""One row -> one example, whatever the notation; and what is refused, in which words."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_launcher.data.lint import WordLinter
from kernel_launcher.data.rows.columns import Columns
from kernel_launcher.data.rows.examples import Message, Messages, Preference, PromptCompletion, Text
from kernel_launcher.data.rows.faults import DataRefusal
from kernel_launcher.data.rows.formats import RowReader
from kernel_launcher.errors import InvalidRequest
from kernel_launcher.spec.fields import Dataset

CHAT = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
NOTHING = {"role": "assistant", "content": ""}
ASKED, ANSWERED = Message("user", "Why?"), Message("assistant", "So.")
SYSTEM = Message("system", "Be brief.")


def read(row, method="sft_text", **columns):
    return RowReader(Columns(**columns), method).read(row)


def refusal(row, method="sft_text", **columns):
    with pytest.raises(DataRefusal) as caught:
        read(row, method, **columns)
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "name", "example"),
    [
        ({"messages": CHAT}, "messages", Messages((ASKED, ANSWERED))),
        ({"conversations": CHAT}, "messages", Messages((ASKED, ANSWERED))),
        (
            {"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]},
            "sharegpt",
            Messages((ASKED, ANSWERED)),
        ),
        (
            {"messages": [{"from": "prompter", "value": "Why?"}, {"from": "assistant", "value": "So."}]},
            "sharegpt",
            Messages((ASKED, ANSWERED)),
        ),
        ({"conversations": CHAT, "system": "Be brief."}, "messages", Messages((SYSTEM, ASKED, ANSWERED))),
        ({"instruction": "Why?", "output": "So."}, "alpaca", Messages((ASKED, ANSWERED))),
        ({"instruction": "Why?", "input": "", "output": "So."}, "alpaca", Messages((ASKED, ANSWERED))),
        ({"instruction": "Why?", "input": None, "output": "So."}, "alpaca", Messages((ASKED, ANSWERED))),
        (
            {"instruction": "Add.", "input": "1 2", "output": "3", "system": "Be brief."},
            "alpaca",
            Messages((SYSTEM, Message("user", "Add.\n\n1 2"), Message("assistant", "3"))),
        ),
        ({"prompt": "Why?", "completion": " So."}, "prompt_completion", PromptCompletion("Why?", " So.")),
        (
            {"prompt": "Why?", "completion": "So.", "system": "Be brief."},
            "prompt_completion",
            Messages((SYSTEM, ASKED, ANSWERED)),
        ),
        (
            {"prompt": CHAT + CHAT[:1], "completion": CHAT[1:]},
            "prompt_completion",
            Messages((ASKED, ANSWERED, ASKED, ANSWERED), context=3),
        ),
        ({"text": "Once."}, "text", Text("Once.")),
    ],
)
def test_every_notation_becomes_the_same_few_shapes(row, name, example):
    assert (name, example) == read(row)


@pytest.mark.parametrize(
    ("row", "example"),
    [
        ({"chosen": "So.", "rejected": "No."}, Preference(None, "So.", "No.")),
        ({"prompt": "Why?", "chosen": "So.", "rejected": "No."}, Preference("Why?", "So.", "No.")),
        (
            {"prompt": "Why?", "chosen": CHAT, "rejected": CHAT},
            Preference((ASKED,), (ANSWERED,), (ANSWERED,)),
        ),
        ({"chosen": CHAT, "rejected": CHAT}, Preference(None, (ASKED, ANSWERED), (ASKED, ANSWERED))),
        (
            {"prompt": CHAT[:1], "chosen": CHAT[1:], "rejected": CHAT[1:], "messages": CHAT},
            Preference((ASKED,), (ANSWERED,), (ANSWERED,)),
        ),
        (
            {"prompt": "Why?", "chosen": "So.", "rejected": "No.", "system": "Be brief."},
            Preference((SYSTEM, ASKED), (ANSWERED,), (Message("assistant", "No."),)),
        ),
    ],
)
def test_preferences_are_texts_or_turns(row, example):
    assert ("preference", example) == read(row, "dpo")


def test_a_chat_wins_over_what_was_made_from_it():
    """Published sets carry the rendered text and the first prompt beside the conversation."""
    row = {"text": "<|user|>Why?", "prompt": "Why?", "messages": CHAT, "chosen": CHAT, "rejected": CHAT}
    assert ("messages", Messages((ASKED, ANSWERED))) == read(row)


def test_a_null_is_no_column():
    """Parquet and DataFrames give every row every column."""
    row = dict.fromkeys(("messages", "conversations", "instruction", "output", "system", "text"))
    assert ("prompt_completion", Messages((ASKED, ANSWERED))) == read(row | {"prompt": "Why?", "completion": "So."})
    assert ("text", Text("a")) == read(row | {"text": "a"})


def test_named_columns_win_over_everything_else():
    row = {"messages": CHAT, "text": "Once.", "question": "Why?", "answer": "So.", "rules": "Be brief."}
    assert PromptCompletion("Why?", "So.") == read(row, prompt="question", completion="answer")[1]
    chat = read(row, prompt="question", completion="answer", system="rules")[1]
    assert Messages((SYSTEM, ASKED, ANSWERED)) == chat
    assert Text("Why?") == read(row, text="question")[1]
    assert Text("Once.") == read(row, text="text")[1]


def test_one_half_of_a_pair_may_keep_its_usual_name():
    assert PromptCompletion("Why?", "So.") == read({"question": "Why?", "completion": "So."}, prompt="question")[1]


def test_a_job_names_its_columns():
    columns = Columns.of(Dataset(prompt="question", system="rules"))
    assert {"prompt": "question", "system": "rules"} == columns.named()
    assert ("question", "completion") == columns.names()[:2]


@pytest.mark.parametrize(
    ("columns", "method", "reason"),
    [
        ({"chosen": "a"}, "sft_text", "dataset.chosen = 'a': sft_text does not read this column."),
        ({"messages": "a"}, "dpo", "dataset.messages = 'a': dpo does not read this column."),
        ({"messages": "a", "text": "b"}, "sft_text", "messages and text are columns of different formats"),
        ({"prompt": "a", "text": "b"}, "sft_text", "prompt and text are columns of different formats"),
        ({"text": "a", "system": "b"}, "sft_text", "dataset.system = 'b': a system message has no place"),
    ],
)
def test_named_columns_that_would_be_ignored_are_refused(columns, method, reason):
    with pytest.raises(InvalidRequest) as caught:
        RowReader(Columns(**columns), method)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, "it fits no format."),
        ({"question": "Why?", "answer": "So."}, "it fits no format."),
        ({"prompt": "Why?"}, "it has nothing in 'completion'."),
        ({"prompt": "Why?", "completion": None}, "it has nothing in 'completion'."),
        ({"instruction": "Why?", "input": "a"}, "it has nothing in 'output'."),
        ({"chosen": "a"}, "it fits no format."),
        ({"prompt": " \n", "completion": "a"}, "'prompt' is empty."),
        ({"prompt": "Why?", "completion": 3}, "'completion' is a number, not text."),
        ({"prompt": "Why?", "completion": math.nan}, "'completion' is NaN, not text."),
        ({"prompt": "Why?", "completion": True}, "'completion' is true or false, not text."),
        ({"prompt": CHAT, "completion": "a"}, "'prompt' is a list, not text."),
        ({"prompt": "a", "completion": CHAT}, "'completion' is a list, not text."),
        ({"prompt": CHAT, "completion": CHAT[:1]}, "'completion' has no assistant turn"),
        ({"instruction": "a", "input": 0, "output": "b"}, "'input' is a number, not text."),
        ({"text": ["a"]}, "'text' is a list, not text."),
        ({"text": b"a"}, "'text' is of type bytes, not text."),
        ({"text": "half \ud83d"}, "'text' holds half of a surrogate pair"),
        ({"messages": "[]"}, "'messages' is text, not a list of turns."),
        ({"messages": {"role": ["user"]}}, "'messages' is an object, not a list of turns."),
        ({"messages": []}, "'messages' has no turns."),
        ({"messages": CHAT[:1]}, "'messages' has no assistant turn: there is no answer to learn."),
        ({"messages": ["hi"]}, "turn 1 is text, not an object with role and content."),
        ({"messages": [CHAT[0], None]}, "turn 2 is empty, not an object with role and content."),
        ({"messages": [{"content": "a"}]}, "turn 1 has no role; known roles are system, user, human"),
        ({"messages": [{"role": ["user"], "content": "a"}]}, "turn 1 has no role"),
        ({"messages": [CHAT[0], {"role": "bot", "content": "a"}]}, "turn 2 has the role 'bot'; known roles are"),
        ({"messages": [{"from": "Human", "value": "a"}]}, "turn 1 has the role 'Human'"),
        (
            {"messages": [CHAT[0], {"role": "assistant", "content": None}]},
            "the content of turn 2 is empty, not text.",
        ),
        ({"messages": [CHAT[0], {"role": "assistant"}]}, "the content of turn 2 is empty, not text."),
        ({"messages": [CHAT[0], NOTHING, *CHAT]}, "the content of turn 2 is empty."),
        ({"messages": [CHAT[0] | {"content": " "}, CHAT[1]]}, "the content of turn 1 is empty."),
        ({"prompt": [CHAT[0], NOTHING], "completion": CHAT[1:]}, "the content of turn 2 is empty."),
        ({"prompt": "Why?", "completion": [NOTHING, CHAT[1]]}, "'completion' is a list, not text."),
        ({"messages": [CHAT[0], CHAT[1] | {"tool_calls": [{}]}]}, "turn 2 has 'tool_calls', which this release"),
        ({"messages": CHAT, "tools": [{"name": "f"}]}, "it has 'tools', which this release does not read"),
        ({"messages": [CHAT[0], CHAT[1] | {"reasoning_content": "Hm."}]}, "turn 2 has 'reasoning_content'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "turn 1 has a part of type 'image_url'; only text can be trained on.",
        ),
        ({"messages": [{"role": "user", "content": [None]}]}, "turn 1 has a part that is empty; only text"),
        (
            {"messages": [{"role": "system", "content": "a"}, *CHAT], "system": "b"},
            "its system turn and its system column",
        ),
        ({"messages": [{"role": "bot" * 100, "content": "a"}]}, f"the role '{'bot' * 13}…'"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(row, reason):
    assert reason in refusal(row)


@pytest.mark.parametrize(
    ("row", "columns", "reason"),
    [
        ({"prompt": "Why?", "completion": "So."}, {"prompt": "question"}, "it has no column 'question'."),
        ({"question": None, "completion": "So."}, {"prompt": "question"}, "it has nothing in 'question'."),
        ({"messages": CHAT}, {"system": "rules"}, "it has no column 'rules'."),
        ({"text": "a", "rules": "b"}, {"system": "rules"}, "it fits no format."),
        ({"body": ""}, {"text": "body"}, "'body' is empty."),
    ],
)
def test_a_named_column_is_never_replaced_by_another(row, columns, reason):
    assert reason in refusal(row, **columns)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"chosen": "a"}, "it has nothing in 'rejected'."),
        ({"chosen": "a", "messages": CHAT}, "it has nothing in 'rejected'."),
        ({"prompt": "a"}, "it has nothing in 'chosen' and 'rejected'."),
        ({"chosen": "a", "rejected": CHAT}, "'rejected' is a list, not text."),
        ({"chosen": CHAT, "rejected": CHAT[:1]}, "'rejected' has no assistant turn"),
        ({"chosen": "a", "rejected": "b", "system": "c"}, "it has a system message and no prompt."),
    ],
)
def test_a_row_that_is_no_preference_says_why(row, reason):
    assert reason in refusal(row, "dpo")


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Why?", "chosen": "So.", "rejected": "No."},
        {"chosen": CHAT, "rejected": CHAT, "completion": None},
        {"prompt": CHAT[:1], "chosen": CHAT[1:], "rejected": CHAT[1:], "score": 1.0},
    ],
)
def test_preferences_are_sent_to_their_method(row):
    """Whatever other format they have a column of."""
    assert 'it is a preference between two answers: type = "dpo" learns from such rows.' == refusal(row)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Why?", "completion": "So."},
        {"messages": CHAT, "chosen": None},
        {"conversations": CHAT},
        {"instruction": "Why?", "output": "So."},
        {"text": "Once."},
    ],
)
def test_rows_with_one_answer_are_sent_to_theirs(row):
    assert refusal(row, "dpo").endswith('to compare it with: type = "sft_text" learns from such rows.')


@pytest.mark.parametrize("nothing", ["", " ", "\n\t"])
@pytest.mark.parametrize(
    ("row", "method"),
    [
        (lambda a: {"messages": [*CHAT, CHAT[0], CHAT[1] | {"content": a}]}, "sft_text"),
        (lambda a: {"messages": [CHAT[0], CHAT[1] | {"content": a}, CHAT[0]]}, "sft_text"),
        (lambda a: {"prompt": CHAT[:1], "completion": [CHAT[1] | {"content": a}]}, "sft_text"),
        (lambda a: {"prompt": "Why?", "completion": a}, "sft_text"),
        (lambda a: {"prompt": "Why?", "completion": a, "system": "Be brief."}, "sft_text"),
        (lambda a: {"instruction": "Why?", "output": a}, "sft_text"),
        (lambda a: {"prompt": "Why?", "chosen": a, "rejected": "No."}, "dpo"),
        (lambda a: {"prompt": "Why?", "chosen": "So.", "rejected": a}, "dpo"),
        (lambda a: {"prompt": CHAT[:1], "chosen": CHAT[1:], "rejected": [CHAT[1] | {"content": a}]}, "dpo"),
    ],
)
def test_an_empty_answer_is_read_and_the_linter_judges_it(row, method, nothing):
    """In any notation: it is an error there, with a name, which a job may allow."""
    linter = WordLinter()
    linter.see_words(1, read(row(nothing), method)[1])
    assert ["empty_answers"] == [finding.code for finding in linter.findings() if finding.severity == "error"]
    assert not {"spaced_answers", "placeholder_answers"} & {finding.code for finding in linter.findings()}


def test_turns_keep_their_text_as_it_is():
    """White space, an empty system turn or tool result, and parts of text; keys without a value mean nothing."""
    turns = [
        {"role": "system", "content": "", "tool_calls": None},
        {"role": "human", "content": [{"type": "text", "text": " a\n"}, "b", {"type": "text", "text": "🙂 "}]},
        {"role": "tool", "content": ""},
        {"role": "assistant", "content": "\tyes \n", "reasoning_content": ""},
    ]
    expected = Messages(
        (Message("system", ""), Message("user", " a\nb🙂 "), Message("tool", ""), Message("assistant", "\tyes \n"))
    )
    assert expected == read({"messages": turns})[1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
TURN = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", "system", "bot"]) | JSON,
        "content": st.text(max_size=5) | JSON,
        "from": st.sampled_from(["human", "gpt"]) | JSON,
        "value": st.text(max_size=5) | JSON,
        "tool_calls": JSON,
    },
)
VALUE = st.text(max_size=5) | st.lists(TURN, max_size=3) | JSON
COLUMNS = (
    *("prompt", "completion", "messages", "conversations", "text", "chosen", "rejected", "system"),
    *("instruction", "output", "input", "question"),
)
ROW = st.dictionaries(st.sampled_from(COLUMNS), VALUE, max_size=6)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(row=ROW, method=st.sampled_from(["sft_text", "dpo"]), named=st.booleans())
def test_any_row_is_read_or_refused(row, method, named):
    """Nothing that JSON can hold raises anything but the refusal, and what is read has something to learn."""
    reader = RowReader(Columns(prompt="question") if named else Columns(), method)
    try:
        _, example = reader.read(row)
    except DataRefusal:
        return
    if isinstance(example, Messages):
        assert any(turn.role == "assistant" for turn in example.messages[example.context :])
        assert all(isinstance(turn.content, str) for turn in example.messages)
    elif isinstance(example, PromptCompletion):
        assert example.prompt.strip()
    else:
        assert isinstance(example, Text if method == "sft_text" else Preference)
