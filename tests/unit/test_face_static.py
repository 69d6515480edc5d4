"""The HTML of a summary: safe, accessible, complete without a script."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from kernel_launcher.protocol.index import Entry
from tests.unit.test_summary import NOW, RUNNING, JobView, Summary, event, status, summary
from tests.unit.views import moment, step
from veri_jupyter.monitor import show, static

if TYPE_CHECKING:
    import pytest

HOSTILE = '<script>alert("1")</script>'


class Page(HTMLParser):
    """What a browser would make of it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        assert [] == self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_all_that_the_text_says_is_in_the_picture() -> None:
    """Both come from one snapshot: progress, figures, folder, time, how to see it again."""
    shown = summary(*RUNNING)
    text = Page(static.card(shown)).text
    for said in (shown.word, shown.progress, *(value for _, value in shown.figures), *shown.place, shown.seen):
        assert said in text
    assert shown.attach in text


def test_a_huge_error_with_control_characters_is_short_and_plain() -> None:
    """A model's own error of 200,000 characters in colour, a warning and a log like it: no escape, no megabyte."""
    long = "\x1b[31mred\x1b]0;title\x07\x00\x9b" + 200_000 * "x"
    failure = event("failure", code=long, message=long, attribution="customer", log_tail=200 * [long])
    begun = [status("running"), event("warning", message=long)]
    ended = JobView().apply_all([*begun, failure, status("failed")])
    busy = JobView().apply_all([*begun, event("download", rank=0, file=long, done_bytes=1, total_bytes=2)])
    entry = Entry(
        id="first-1", name="first", root="/runs/first", created_at="2025-01-01T10:10:10.000Z", fingerprint="x"
    )
    for view in (ended, busy):
        shown = Summary.of(entry, view, NOW)
        for said in (static.card(shown), static.table([shown]), shown.text(), shown.line()):
            assert "redx" in said
            assert len(said) < 50_000
            assert [] == [character for character in said if ord(character) < 32 and character not in "\n\t"]


def test_it_needs_no_script_and_no_network() -> None:
    """A saved notebook shows it: no script, no handler, no image, no link."""
    page = Page(static.card(summary(*RUNNING)))
    assert {tag for tag, _ in page.tags} <= {"div", "span", "strong", "code", "pre"}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_it_can_be_heard() -> None:
    """A screen reader is told the job and its state, and how far it is."""
    page = Page(static.card(summary(*RUNNING)))
    roles = {attributes["role"]: attributes for _, attributes in page.tags if "role" in attributes}
    assert "Job first: running" == roles["group"]["aria-label"]
    assert "7" == roles["progressbar"]["aria-valuenow"]


def test_colours_follow_the_theme() -> None:
    """Only the badge, the bar and the edge of a log bring a colour of their own; text takes the page's."""
    for _, attributes in Page(static.card(summary(*RUNNING))).tags:
        style = attributes.get("style") or ""
        assert "color: #" not in style.replace("color: #fff", "").replace("background", "")


def test_the_chart_is_for_every_reader() -> None:
    """A picture without a script while it runs, and a line of blocks; plotly's figure once it has ended."""
    empty = static.chart(moment())
    assert "loss: no step yet" == empty["text/plain"]
    assert "no step yet" in Page(empty["text/html"]).text
    running = static.chart(moment(*map(step, range(1, 41))))
    assert running["text/plain"].startswith("loss 2.99 █")
    page = Page(running["text/html"])
    assert {"div", "svg", "g", "path", "text"} == {tag for tag, _ in page.tags}
    assert ["loss: 2.65"] == [value["aria-label"] for tag, value in page.tags if tag == "svg"]
    assert {"text/plain", "text/html"} == set(running)
    ended = static.chart(moment(*map(step, range(1, 41)), status("completed")))
    names = [trace["name"] for trace in ended["application/vnd.plotly.v1+json"]["data"]]
    assert ["loss, each step", "loss, mean of about 5 steps"] == names[:2]


def test_a_chart_stays_small() -> None:
    """However long the run: it is part of a saved notebook."""
    shown = static.chart(moment(*(step(number, 100_000) for number in range(1, 20_001)), status("completed")))
    assert len(shown["text/html"]) < 30_000
    assert len(str(shown["application/vnd.plotly.v1+json"])) < 20_000


def test_the_foot_of_a_dashboard_says_when_and_how_to_go_on() -> None:
    """That is what a saved notebook shows where the dashboard was; opened it has everything."""
    found = static.foot(moment(step(1), name="<b>name"))
    text = Page(found["text/html"]).text
    for said in ("as of 11:12:22 on 2025-01-01", "if this stands still: %veri_attach <b>name-2025", "Step 1 of 100"):
        assert said in text
        assert said in found["text/plain"]
    assert "loss 2.99" in found["text/plain"]


def test_what_stands_still_says_so_below_what_it_showed_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the page and in the text: why, as text, and how to go on."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(show, "display_bundle", lambda bundle, **_: sent.append(bundle))
    shown = moment(step(40))
    picture = show.Displayed("place", static.bundle)
    picture.begin(shown.entry, shown.view)
    picture.fail(shown.entry, RuntimeError(HOSTILE))
    before, after = sent
    for kind in ("text/plain", "text/html"):
        assert after[kind].startswith(before[kind])
    for said in (after["text/plain"], Page(after["text/html"]).text):
        assert f"could not be drawn (RuntimeError: {HOSTILE}). Go on: %veri_attach {shown.entry.id}" in said
