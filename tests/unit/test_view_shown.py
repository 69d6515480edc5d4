"""What a data view looks like as HTML, as text and as JSON, and that no row can make it something else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernel_launcher.data.show import text
from kernel_launcher.data.show.view import DataView, Part, Row, Turn
from kernel_launcher.data.show.visible import visible, visible_pieces
from tests.unit.view_toys import a_finding, a_row, a_view, chat, token
from veri_jupyter.data import html

HOSTILE = (
    "<script>alert(1)</script>", '" onmouseover="alert(1)', "</u></style><img src=x onerror=alert(1)>", "&lt;b&gt;",
    "\x1b[31m\x1b]0;title\x07", "\x9b31m", "\u202egnp.exe\u202c", "\u2066\u2069\u200b\ufeff\u2028", "⟦trained⟧ ⟪x⟫ ✂",
    "\r\b\x7f\x00", "-->]]>", "{{7*7}}", "\U000e0041",
)  # fmt: skip
TEXT = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20), st.text("<>&\"'\x1b\u202e\n\t ⟦✂", max_size=8))


class Page(HTMLParser):
    """The elements of a page, its text, and what it says to a pointer."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.said = ""
        self.by_element: dict[str, str] = {}
        self.feed(page)
        assert [] == self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.said += data
        for tag in set(self.open):
            self.by_element[tag] = self.by_element.get(tag, "") + data


def everywhere(said: str) -> DataView:
    """A view with the same text wherever a user's text can stand."""
    row = Row(7, (Part("", chat(said, said)),), said, (said,))
    finding = a_finding(message=said, fix=said)
    return a_view(row, source=said, model=said, findings=(finding,), settings={"chat_template": said})


@given(st.lists(TEXT, min_size=1, max_size=5))
@example(list(HOSTILE))
def test_no_row_brings_markup(texts: list[str]) -> None:
    """Whatever stands in the rows, the page has the same elements and attributes as with harmless words."""
    said = " ".join(texts)
    page, harmless = Page(html.page(everywhere(said))), Page(html.page(everywhere(" ".join("x" * said.count(" ")))))
    allowed = {tag for tag, _ in harmless.tags}
    assert {tag for tag, _ in page.tags} <= allowed
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "src"]
    assert 1 == sum(tag == "style" for tag, _ in page.tags)
    assert visible(said).rstrip("\n") in page.said


@given(st.lists(TEXT, min_size=1, max_size=5))
@example(list(HOSTILE))
def test_nothing_in_a_row_reaches_the_terminal_as_a_command(texts: list[str]) -> None:
    """No escape, no control, no change of direction, and our own marks only where we put them."""
    said = text.text(everywhere(" ".join(texts)))
    assert [] == [c for c in said if not c.isprintable() and c != "\n"]
    harmless = text.text(everywhere("x"))
    marks = "⟦⟧⟪⟫✂"
    assert {mark: harmless.count(mark) for mark in marks} == {mark: said.count(mark) for mark in marks}


@given(st.lists(TEXT, min_size=1, max_size=5))
def test_colours_are_only_ours(texts: list[str]) -> None:
    """With colours, each escape is one that we wrote, and the text is the same without them."""
    view = everywhere(" ".join(texts))
    coloured = text.text(view, colour=True)
    assert text.text(view) == re.sub(r"\x1b\[[0-9]m", "", coloured)


@given(st.lists(TEXT, min_size=1, max_size=5))
def test_json_holds_what_the_rows_hold(texts: list[str]) -> None:
    """Nothing is escaped, shortened or replaced in the values that a program gets."""
    said = " ".join(texts)
    answer = json.loads(json.dumps(everywhere(said).to_json()))
    tokens = answer["rows"][0]["parts"][0]["tokens"]
    assert f"{said}<|im_end|>\n" == "".join(one["text"] for one in tokens).rpartition("<|im_start|>assistant\n")[2]
    assert said == answer["source"] == answer["rows"][0]["prompt"]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a b", "a b"),
        ("a\nb", "a↵\nb"),
        ("\ta", "→a"),
        ("\x1b[0m", "⟨U+001B⟩[0m"),
        ("\u202e", "⟨U+202E⟩"),
        ("\u00a0", "⟨U+00A0⟩"),
        ("é 日本 👩", "é 日本 👩"),
    ],
)
def test_what_has_no_picture_gets_one(raw: str, shown: str) -> None:
    """Line ends, tabs, controls, directions and spaces that look like others."""
    assert shown == visible(raw)


def test_spaces_are_seen_where_they_would_not_be() -> None:
    """At the start and the end of a line and of a stretch; between words a space is a space."""
    assert ["··a", " b·", "↵\n", "·c"] == visible_pieces(["  a", " b ", "\n", " c"])
    assert ["é", "⋯"] == visible_pieces(["é", ""])


def states(turns: tuple[Turn, ...]) -> list[tuple[str, list[tuple[str, str]]]]:
    return [
        (turn.role, [(state, "".join(t.text for run in runs for t in run.first)) for state, runs in turn.stretches()])
        for turn in turns
    ]


def test_the_text_of_the_template_stands_with_the_turn_that_it_opens_or_closes() -> None:
    """A reader sees turns, not a template in pieces."""
    expected = [
        ("user", [("context", "<|im_start|>user\nWho?<|im_end|>\n")]),
        ("assistant", [("context", "<|im_start|>assistant\n"), ("trained", "Me.<|im_end|>"), ("context", "\n")]),
    ]
    assert expected == states(Part("", chat("Who?", "Me.")).turns())


def test_a_turn_that_the_template_writes_by_itself_is_its_own() -> None:
    """A system message that no row has is not the user's."""
    opening = token("<|im_start|>", special=True)
    closing = token("<|im_end|>", special=True)
    written = (opening, token("system"), token("\n"), token("Be good."), closing, token("\n"))
    turns = Part("", written + chat("Who?", "Me.")).turns()
    assert ["template", "user", "assistant"] == [turn.role for turn in turns]
    assert [("context", "<|im_start|>system\nBe good.<|im_end|>\n")] == states(turns)[0][1]
    assert ["template"] == [turn.role for turn in Part("", written).turns()]
    assert ["text"] == [turn.role for turn in Part("", (token("<s>", special=True), token("a", "text"))).turns()]


def test_every_token_is_in_one_turn() -> None:
    """None is lost, none is shown twice, and their order is the row's."""
    for tokens in (chat("a b c", "d e"), chat() + chat(), chat()[3:], chat()[:2]):
        shown = [t for turn in Part("", tokens).turns() for run in turn.runs for t in run.first]
        assert list(tokens) == shown


def test_trained_cut_and_control_tokens_are_told_apart_in_every_form() -> None:
    """By a mark and by an element, not by colour alone."""
    tokens = (
        token("Q", "user"),
        token("A", "assistant", trained=True),
        token("<e>", special=True, trained=True),
        token("B", "assistant", trained=True, cut=True),
    )
    view = a_view(a_row(tokens))
    assert "⟦A⟪<e>⟫⟧✂B✂" in text.text(view)
    shown = Page(html.page(view)).by_element
    assert "underlinedtrained: A<e> end of trained. " == shown["u"].replace(": trained", "")
    assert "B" in shown["s"]
    assert "<e>" in shown["kbd"]
    assert {"tokens": 4, "trained": 2, "cut": 1} == view.rows[0].parts[0].counts
    assert "4 tokens, 2 trained, 1 cut" in text.text(view)


def test_a_pointer_and_a_screen_reader_find_every_id() -> None:
    """Each token says its id, whose it is and what becomes of it; a table has them all."""
    page = Page(html.page(a_view(a_row((token("Hi", "assistant", trained=True, id=4711),)))))
    assert "4711 assistant, trained" in [attributes.get("title") for _, attributes in page.tags]
    assert "4711 Hi" in page.said
    labels = [attributes["aria-label"] for _, attributes in page.tags if "aria-label" in attributes]
    assert ["Data: ./sft.jsonl for ./smollm2: 600 rows", "row 17"] == labels


def test_a_row_of_any_length_makes_a_page_of_bounded_size() -> None:
    """Beginning and end of a long answer are shown, and how much is between them; the JSON has it all."""
    answer = tuple(token(f" {i}", "assistant", trained=True) for i in range(100_000))
    turns = tuple(token("a", ("user", "assistant")[i % 2]) for i in range(10_000))
    for tokens, said in ((answer, "[99,600 tokens more]"), (turns, "[9,800 tokens more]")):
        view = a_view(a_row(tokens, prompt=100_000 * "p"))
        page = html.page(view)
        assert said in page
        assert said in text.text(view)
        assert len(page) < 120_000
        assert len(tokens) == len(view.to_json()["rows"][0]["parts"][0]["tokens"])


def test_both_sides_of_a_pair_are_shown() -> None:
    """Each with its name, its counts and its tokens."""
    row = Row(3, (Part("chosen", chat("Q", "Good.")), Part("rejected", chat("Q", "Bad."))))
    for shown in (text.text(a_view(row)), Page(html.page(a_view(row))).said):
        assert "chosen: " in shown
        assert "rejected: " in shown
        assert "Good." in shown
        assert "Bad." in shown


def test_all_that_the_text_says_of_the_data_set_is_in_the_picture() -> None:
    """Both come from one view: what was looked at, lengths, findings with their rows and the fix."""
    view = a_view(findings=(a_finding(),), complete=False, rows_seen=1000)
    page = Page(html.page(view)).said
    said = [text.headline(view), text.settings(view), *(word for pair in text.figures(view) for word in pair)]
    for words in [*said, text.finding_line(view.findings[0]), text.kind_line(view)]:
        assert words in page
        assert words in text.text(view)
    assert "the first 1,000 rows" in page
    assert "(rows 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 590 more)" in page


def test_one_of_anything_is_not_several() -> None:
    """One row, of one token, cut, left out, found: nothing is called by its plural."""
    one = {**a_view().lengths, "cut": 1, "dropped_by_reason": {"nothing_trained": 1}}
    row = a_row((token("a", "assistant", trained=True),))
    finding = a_finding(message="It is so.", rows=(1,), count=1)
    view = a_view(row, rows_seen=1, of_kind=1, formats={"messages": 1}, lengths=one, findings=(finding,))
    for said in (text.text(view), text.text(replace(view, complete=False)), Page(html.page(view)).said):
        assert [] == re.findall(r"\b1 (?:rows|tokens|messages)\b|\brows 1\b", said)
        assert "1 of 1 row" in said


def test_no_row_of_a_kind_is_a_sentence() -> None:
    """Nothing suspicious is something to say."""
    assert "No row is suspicious." in text.text(replace(a_view(), kind="suspicious", of_kind=0, rows=()))


def test_it_needs_no_script_and_no_network() -> None:
    """A saved notebook shows it: no script, no handler, no image, no link, nothing that a style fetches."""
    page: Any = html.page(a_view())
    tags = {tag for tag, _ in Page(page).tags}
    assert tags.isdisjoint({"script", "img", "a", "link", "iframe", "input", "button", "svg"})
    assert "url(" not in page
    assert "@import" not in page
