"""Comparisons: two answers behind one prompt, each of them in the loss with its end and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_launcher.data.chat.compare import sides
from kernel_launcher.data.chat.mark import Marker
from kernel_launcher.data.rows.examples import Message, Preference
from kernel_launcher.data.rows.faults import DataRefusal
from kernel_launcher.data.show.tokens import token_rows
from kernel_launcher.data.training.encode import pair_of
from tests.unit.data_toys import ClosingCodec, ForgetfulCodec, ToyCodec
from tests.unit.template_table import TABLE
from tests.unit.template_toys import codec as codec_of


def turns(*given):
    return tuple(Message(*turn) for turn in given)


ASKED = turns(("user", "Why now"))
GOOD, BAD = turns(("assistant", "So it is")), turns(("assistant", "No"))
CHAT = Preference(ASKED, GOOD, BAD)


def encoded(example, codec=None, *, max_length=1000, loss_on="answers", **options):
    codec = codec or ToyCodec()
    marked = Marker(codec, loss_on).pair(example)
    tokens = tuple(codec.encode([one.text])[0] for one in marked)
    return codec, pair_of(marked, tokens, codec, max_length=max_length, **options)


def shown(example, codec=None, **options):
    """Prompt, preferred and other answer as text."""
    codec, row = encoded(example, codec, **options)
    return tuple("".join(codec.words(ids)) for ids in (row.prompt_ids, row.chosen_ids, row.rejected_ids))


EXPECTED = ("<|user|>\nWhy now<|end|>\n<|assistant|>\n", "So it is<|end|>", "No<|end|>")


@pytest.mark.parametrize(
    "example",
    [
        CHAT,
        Preference(None, ASKED + GOOD, ASKED + BAD),
        Preference((), ASKED + GOOD, ASKED + BAD),
    ],
)
@pytest.mark.parametrize("loss_on", ["answers", "last_answer", "all"])
def test_both_answers_end_and_share_their_prompt(example, loss_on):
    """Whether the prompt is given or is what both sides begin with; what follows an answer is left out."""
    assert EXPECTED == shown(example, loss_on=loss_on)


def test_a_longer_beginning_belongs_to_the_prompt():
    """Also the answers in it, and turns that both sides repeat after a prompt that is given."""
    given = (*ASKED, *turns(("assistant", "a"), ("user", "b")))
    expected = (
        "<|user|>\nWhy now<|end|>\n<|assistant|>\na<|end|>\n<|user|>\nb<|end|>\n<|assistant|>\n",
        *EXPECTED[1:],
    )
    assert expected == shown(Preference(None, given + GOOD, given + BAD))
    assert expected == shown(Preference(given[:1], given[1:] + GOOD, given[1:] + BAD))


def test_what_closes_a_conversation_is_in_no_answer():
    assert EXPECTED == shown(CHAT, ClosingCodec())


def test_a_template_that_forgets_earlier_thoughts_compares_last_answers():
    given = (*ASKED, *turns(("assistant", "a"), ("user", "b")))
    assert ("<|think|>So it is<|end|>", "<|think|>No<|end|>") == shown(
        Preference(given, GOOD, BAD), ForgetfulCodec()
    )[1:]


def test_an_answer_that_begins_a_conversation_can_be_compared():
    assert ("<|assistant|>\n", *EXPECTED[1:]) == shown(Preference(None, GOOD, BAD))


def test_two_equal_sides_leave_the_last_answer_to_compare():
    """Nothing is learned of it, which is the linter's to say."""
    assert (EXPECTED[0], EXPECTED[1], EXPECTED[1]) == shown(Preference(None, ASKED + GOOD, ASKED + GOOD))


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        (turns(("user", "other"), ("assistant", "a")), "chosen has user, assistant: only one answer"),
        (turns(("assistant", "a"), ("user", "b"), ("assistant", "c")), "chosen has assistant, user, assistant"),
        ((*GOOD, Message("user", "thanks")), "chosen has assistant, user"),
    ],
)
def test_sides_that_differ_by_more_than_an_answer_are_refused(chosen, reason):
    """Whatever the user or a tool said would be in the loss."""
    with pytest.raises(DataRefusal, match=reason):
        encoded(Preference(ASKED, chosen, BAD))


def test_plain_text_is_compared_with_its_ends():
    codec = ToyCodec()
    codec.bos = tuple(codec.encode(["<|start|>"])[0].ids)
    expected = ("<|start|>Q a A", " b<|end|>", " c d<|end|>")
    assert expected == shown(Preference("Q a A", " b", " c d"), codec)
    assert expected == shown(Preference(None, "Q a A b", "Q a A c d"), codec)
    assert expected == shown(Preference("<|start|>Q a A", " b", " c d<|end|>"), codec)


def test_a_token_across_the_border_is_an_answers_and_is_told():
    """Both sides keep the tokens that they have when they are read as a whole."""
    row = encoded(Preference("why be", "cause", " it"))[1]
    assert ("why ", "because<|end|>", "be it<|end|>") == shown(Preference("why be", "cause", " it"))
    assert row.straddled
    assert not encoded(Preference("why ", "cause", "it"))[1].straddled
    assert not encoded(CHAT)[1].straddled


def test_a_prompt_loses_its_start_and_keeps_its_bos():
    codec = ToyCodec()
    codec.bos = tuple(codec.encode(["<|start|>"])[0].ids)
    example = Preference("a b c d", " e", " f g")
    for room, prompt in ((8, "a b c d"), (7, " b c d"), (3, " d"), (2, "d"), (1, "")):
        assert (f"<|start|>{prompt}", " e<|end|>", " f g<|end|>") == shown(example, codec, max_prompt_length=room)
        row = encoded(example, codec, max_prompt_length=room)[1]
        assert (8 - room, 11, 13) == (row.prompt_dropped, row.length_chosen, row.length_rejected)
        assert (room < 8) == row.cut
        assert not row.chosen_cut
        assert not row.rejected_cut


def test_then_the_whole_loses_its_end():
    example = Preference("a b c", " e", " f g")
    assert ("a b c", " e<|end|>", " f g<|end|>") == shown(example, max_length=10)
    assert ("a b c", " e<|end|>", " f ") == shown(example, max_length=8)
    row = encoded(example, max_length=8)[1]
    assert (False, True, True) == (row.chosen_cut, row.rejected_cut, row.cut)
    assert ("b c", " e<|end|>", " f g<|end|>") == shown(example, max_length=8, max_prompt_length=3)
    assert ("a b ", "", "") == shown(example, max_length=4)
    assert encoded(example, max_length=4)[1].chosen_cut


def test_a_comparison_can_be_looked_at_token_by_token():
    """Either side, with what its prompt lost."""
    codec = ToyCodec()
    codec.bos = tuple(codec.encode(["<|start|>"])[0].ids)
    example = Preference("a b c", " d", " e")
    one = sides(example)[0]
    marked = Marker(codec, "answers").pair(example)[0]
    tokens = token_rows(one, marked, codec.encode([marked.text])[0], codec, 5, prompt_dropped=2)
    assert ["", "a", " ", "b", " ", "c", " ", "d", ""] == [token.text for token in tokens]
    assert [False, True, True, False, False, False, False, True, True] == [token.cut for token in tokens]
    assert [6, 7, 8] == [i for i, token in enumerate(tokens) if token.trained]
    assert [None, *["prompt"] * 5, *["completion"] * 2, None] == [token.role for token in tokens]


WORDS = st.text("ab é\n.", min_size=1, max_size=10).filter(str.strip)


@settings(deadline=None, max_examples=100)
@given(
    name=st.sampled_from([name for name in TABLE if TABLE[name].two or name == "qwen3"]),
    asked=WORDS,
    answers=st.tuples(WORDS, WORDS),
    room=st.integers(1, 60),
    prompt_room=st.none() | st.integers(1, 40),
)
def test_the_parts_are_those_of_each_side_alone(name, asked, answers, room, prompt_room):
    """In every template: prompt and answer together are the tokens of the text up to the end of the answer."""
    codec = codec_of(name)
    example = Preference(turns(("user", asked)), *(turns(("assistant", answer)) for answer in answers))
    marked = Marker(codec, "answers").pair(example)
    tokens = tuple(codec.encode([one.text])[0] for one in marked)
    whole = pair_of(marked, tokens, codec, max_length=10_000)
    for one, its, answer in zip(marked, tokens, (whole.chosen_ids, whole.rejected_ids), strict=True):
        ids = whole.prompt_ids + answer
        assert its.ids[: len(ids)] == ids
        assert its.offsets[len(ids) - 1][1] == one.spans[0][1]
        assert its.offsets[len(whole.prompt_ids) - 1][1] <= one.spans[0][0]
    cut = pair_of(marked, tokens, codec, max_length=room, max_prompt_length=prompt_room)
    kept = whole.prompt_ids[-prompt_room:] if prompt_room else whole.prompt_ids
    assert kept[:room] == cut.prompt_ids
    assert whole.chosen_ids[: max(0, room - len(kept))] == cut.chosen_ids
    assert whole.rejected_ids[: max(0, room - len(kept))] == cut.rejected_ids
