"""Hostile text in the explorer stays text, wherever it comes from and wherever it is shown."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import pytest

from kernel_launcher.planner.plan import Default
from tests.unit.explorer_toys import KEYS, QWEN, Shown
from tests.unit.test_face_static import Page
from veri_jupyter.explorer import picture
from veri_jupyter.explorer.state import State, judge
from veri_jupyter.explorer.ways import StageReason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Sample

NAME = "<img src=x onerror=alert(1)>\"'&<b>"
TEXT = f"{NAME}</div></style><script>alert(1)</script><svg onload=alert(1)>"
FOREIGN = {"img", "script", "svg", "b"}


def parts(widget: widgets.Widget) -> Iterator[widgets.Widget]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from parts(child)


def pages(shown: Shown) -> list[Page]:
    """All that is shown as HTML, of which nothing came with a text: neither elements nor what they do."""
    found = [Page(part.value) for part in parts(shown.live.widget) if isinstance(part, widgets.HTML)]
    for page in found:
        for tag, attributes in page.tags:
            ours = tag == "b" and not attributes
            assert tag not in FOREIGN or ours, page.text
            assert attributes.get("class") == "vx-copy" or not [name for name in attributes if name.startswith("on")]
    return found


def test_what_is_not_html_is_plain_text() -> None:
    """Names of controls, of buttons and of what can be chosen are never read as HTML."""
    made = Shown()
    made.open_all()
    assert [] == [part for part in parts(made.live.widget) if getattr(part, "description_allow_html", False)]
    made.live.close()


@pytest.mark.parametrize("value", [TEXT, [TEXT], {TEXT: TEXT}], ids=["text", "list", "table"])
def test_any_setting_may_be_hostile(value: Any) -> None:
    """Refused or not: beside its control, in the verdict, at its head, in the text to copy."""
    made = Shown()
    made.open_all()
    for key in (*KEYS, TEXT, f"method.{TEXT}"):
        made.live._go(QWEN.set({key: value}))
        pages(made)
    made.wait()
    pages(made)
    made.live.close()


def test_model_data_columns_and_rows_may_be_hostile(sample: Sample, tmp_path: Path) -> None:
    """Paths, names of columns, what rows say, and a variable: where they are seen, they are seen as they are."""
    model = tmp_path / NAME
    shutil.copytree(sample.tiny, model)
    rows = [{TEXT: f"{TEXT} {i}", "answer": f"{TEXT} {i}"} for i in range(8)]
    state = State({"model.base": str(model), "dataset.prompt": TEXT, "dataset.completion": "answer"}, "rows")
    made = Shown(state, rows=rows)
    made.open_all()
    made.wait()
    assert any("trained" in page.text and "alert(1)" in page.text for page in pages(made))
    plan = made.live.judged.plan
    assert plan is not None
    assert FOREIGN.isdisjoint(tag for tag, _ in Page(plan.html()).tags)

    made.live._go(state.set({"dataset.prompt": "answer", "dataset.completion": TEXT * 2}))
    made.wait()
    assert any(TEXT in page.text for page in pages(made)), "the columns that there are"
    data = tmp_path / f"{NAME}.jsonl"
    data.write_text("{}\n")
    made.live._go(state.with_rows("").set({"dataset.id": str(data)}))
    made.wait()
    assert any(NAME in page.text for page in pages(made))
    made.live._go(state.with_rows(TEXT))
    made.wait()
    assert any(f"no variable {TEXT}" in page.text for page in pages(made))
    made.live.close()


def test_what_goes_wrong_may_be_hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while drawing, launching, or looking at rows."""
    from veri_jupyter import start
    from veri_jupyter.explorer import live, looks

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(TEXT)

    made = Shown(QWEN.with_rows("df"))
    made.open_all()
    made.wait()
    monkeypatch.setattr(looks, "look_at", fail)
    made.live._go(QWEN.with_rows("df").set({"method.loss_on": "all"}))
    made.wait()
    assert any(TEXT in page.text for page in pages(made))
    monkeypatch.setattr(start, "prepare", fail)
    made.live.launch()
    made.wait()
    assert any(page.text.startswith("To launch: ") and TEXT in page.text for page in pages(made))
    made.pump.tells = True
    monkeypatch.setattr(live, "judge", fail)
    made.type("method.max_seq_length", "77")
    assert any("NOT DRAWN" in page.text and TEXT in page.text for page in pages(made))
    made.live.close()


def test_what_a_plan_says_may_be_hostile() -> None:
    """Its warnings, its reasons, and what it filled in."""
    plan = judge(QWEN).plan
    assert plan is not None
    hostile = replace(plan, trace=(TEXT,), warnings=(TEXT,), defaults=(Default(TEXT, TEXT, TEXT),))
    for said in (picture.decided(hostile), picture.why(hostile, [StageReason(3, chosen=True, reason=TEXT)])):
        page = Page(said)
        assert TEXT in page.text
        assert not [tag for tag, attributes in page.tags if tag in FOREIGN and (tag != "b" or attributes)]
