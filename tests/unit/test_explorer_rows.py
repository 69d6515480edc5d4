"""What the model would learn, in the explorer: rows are looked at beside the page, and only while somebody looks."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import ipywidgets
import pytest

from kernel_launcher.errors import InvalidRequest
from tests.unit.explorer_toys import QWEN, Shown
from tests.unit.test_face_static import Page
from veri_jupyter.explorer import looks
from veri_jupyter.explorer.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Sample


@pytest.fixture
def rows(sample: Sample) -> list[dict[str, Any]]:
    return [json.loads(line) for line in sample.heldout.read_text().splitlines()]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The specs whose rows were looked at."""
    found: list[Any] = []
    look = looks.look_at
    monkeypatch.setattr(looks, "look_at", lambda spec, rows: (found.append(spec), look(spec, rows))[1])
    return found


@pytest.fixture
def shown(sample: Sample, rows: list[dict[str, Any]], asked: list[Any]) -> Iterator[Shown]:
    made = Shown(State({"model.base": str(sample.tiny), "method.max_seq_length": 512}, "mine"), mine=rows)
    made.wait()
    yield made
    made.live.close()


def look_closely(shown: Shown) -> None:
    shown.live._panel._rows_fold.head.value = True
    shown.wait()


def page(shown: Shown) -> Page:
    """The row that is shown."""
    leaf = shown.live._panel._learns._leaf
    assert leaf is not None
    return Page(leaf._page.value)


def states(shown: Shown) -> set[str]:
    """Which elements its tokens stand in: ``u`` is trained, ``s`` is cut."""
    return {tag for tag, attributes in page(shown).tags if attributes.get("class") == "run"} - {"span"}


def said(shown: Shown) -> str:
    return Page(shown.live._panel._learns._said.value).text


def test_rows_are_shown_when_the_head_is_opened(shown: Shown) -> None:
    """Before that there is no widget for them; their lengths stand beside the verdict."""
    assert "tokens a row p50" in shown.verdict
    assert shown.live._panel._learns._leaf is None
    look_closely(shown)
    assert "u" in states(shown)
    assert said(shown).startswith("Of the rows: cut 0; suspicious: ")


def test_rows_follow_the_form(shown: Shown, sample: Sample) -> None:
    """Length, loss, data, method: what is shown is what these settings train."""
    look_closely(shown)
    assert "s" not in states(shown)
    shown.type("method.max_seq_length", "16")
    shown.wait()
    assert "s" in states(shown)
    shown.type("method.max_seq_length", "")
    shown.open("Data")
    before = page(shown).text
    shown.type("method.loss_on", "all")
    shown.wait()
    assert before != page(shown).text
    shown.type("dataset.id", str(sample.dpo))
    shown.type("method.type", "dpo")
    shown.wait()
    assert "rejected" in page(shown).text


def test_nothing_is_looked_at_twice(shown: Shown, asked: list[Any]) -> None:
    """What leaves the tokens alone asks for no look, nor does the cut while nobody sees it."""
    assert 1 == len(asked)
    shown.type("method.max_seq_length", "16")
    shown.type("method.learning_rate", "1e-4")
    shown.wait()
    assert 1 == len(asked)
    look_closely(shown)
    assert 2 == len(asked)
    shown.type("method.learning_rate", "2e-4")
    shown.type("method.micro_batch_size", "x")
    shown.type("method.micro_batch_size", "2")
    shown.wait()
    assert 2 == len(asked)


def test_leafing(shown: Shown) -> None:
    """The clicks of the rows are followed by the thread that draws."""
    look_closely(shown)
    leaf, first = shown.live._panel._learns._leaf, page(shown).text
    assert leaf is not None
    shown.pump.waits = True
    leaf._on.click()
    assert first == page(shown).text
    shown.pump.run()
    assert first != page(shown).text


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (State({}), "name a model and rows"),
        (QWEN, "Name rows or a file"),
        (QWEN.with_rows("gone"), "There is no variable gone."),
        (QWEN.with_rows("df"), "its tokenizer is not on this machine"),
    ],
)
def test_why_there_are_no_rows(state: State, why: str) -> None:
    """Without data, without a tokenizer."""
    made = Shown(state)
    look_closely(made)
    assert why in said(made)
    assert made.live._panel._learns._leaf is None
    made.live.close()


def test_another_look_at_what_was_missing(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the tokenizer is here, opening the head again shows the rows."""

    def fail(*_: object) -> None:
        raise InvalidRequest([])

    with monkeypatch.context() as patched:
        patched.setattr(looks, "look_at", fail)
        look_closely(shown)
        shown.type("method.max_seq_length", "16")
        shown.wait()
        assert "none" == shown.live._panel._learns._leaf.widget.layout.display  # type: ignore[union-attr]
    shown.live._panel._rows_fold.head.value = False
    look_closely(shown)
    assert "s" in states(shown)


def test_whatever_goes_wrong_is_said(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """As text and without secrets; else the page would look for ever."""

    def fail(*_: object) -> None:
        raise RuntimeError("<b> hf_abcdefghijklmnopqrstuv")

    monkeypatch.setattr(looks, "look_at", fail)
    look_closely(shown)
    shown.type("method.max_seq_length", "16")
    shown.wait()
    assert "RuntimeError: <b> ***" == said(shown)


def test_a_redraw_does_not_wait_for_a_look(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is there at once; of what was wished for meanwhile only the last is looked at."""
    look_closely(shown)
    may_end, lengths, look = threading.Event(), [], looks.look_at

    def slow(spec: Any, rows: Any) -> Any:
        lengths.append(spec.method.max_seq_length)
        may_end.wait(timeout=30)
        return look(spec, rows)

    monkeypatch.setattr(looks, "look_at", slow)
    for length in (32, 24, 16):
        shown.type("method.max_seq_length", str(length))
        assert length == shown.live.judged.plan.method.max_seq_length  # type: ignore[union-attr]
    assert "Looking at the rows…" == said(shown)
    may_end.set()
    shown.wait()
    assert [32, 16] == lengths
    assert "cut 100" in said(shown)


def test_closing_ends_the_looking(sample: Sample) -> None:
    """A look that ends after its page leaves nothing behind."""
    before = set(ipywidgets.widgets.widget._instances)
    made = Shown(State({"model.base": str(sample.tiny)}, "df"))
    made.live._panel._rows_fold.head.value = True
    made.live.close()
    made.wait()
    assert before == set(ipywidgets.widgets.widget._instances)
