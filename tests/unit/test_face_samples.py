"""Answers during a run, from the events to what a person sees."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kernel_launcher.protocol.fold import JobView
from kernel_launcher.protocol.summary import Summary
from tests.unit.toys import run_folder
from veri_jupyter.monitor.sample_table import SampleTable

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "<script>alert(1)</script>\x1b[31m"


def answered(step: int, *texts: str, **more: Any) -> dict[str, Any]:
    """One round of answers to ``p0``, ``p1`` and so on."""
    samples = [{"prompt": f"p{i}", "text": text, "tokens": 2, "finished": True} for i, text in enumerate(texts)]
    return {"kind": "samples", "src": "rank", "rank": 0, "step": step, "samples": samples, **more}


def view(*events: dict[str, Any]) -> JobView:
    return JobView().apply_all(events)


def test_rounds_stand_side_by_side() -> None:
    """Base first, then by step; a round that was skipped has no column."""
    rounds = view(
        answered(0, "a", "b"), answered(25, "c", "d"), answered(30, skipped="no time"), answered(50, "e", "f")
    )
    table = SampleTable(rounds.samples)
    assert "> p0\n  base: a\n  step 25: c\n  step 50: e\n> p1\n  base: b\n  step 25: d\n  step 50: f" == str(table)
    html = table._repr_html_()
    places = [html.index(f">{head}</th>") for head in ("prompt", "base", "step 25", "step 50")]
    assert sorted(places) == places
    assert [0, 25, 50] == [entry["step"] for entry in table.to_json()]
    assert 3 == len(table)


def test_an_answer_that_was_broken_off_ends_in_dots() -> None:
    """It had more to say; in the text form line ends are spaces."""
    event = answered(0, "one\ntwo")
    event["samples"][0]["finished"] = False
    assert "> p0\n  base: one two…" == str(SampleTable(view(event).samples))


def test_no_samples_are_no_table() -> None:
    """Before the first round, or when they are switched off."""
    table = SampleTable(view().samples)
    assert "no samples" == str(table)
    assert "no samples" in table._repr_html_()


def test_what_a_model_says_stays_text() -> None:
    """Neither markup in a page nor colours in a terminal."""
    table = SampleTable(view(answered(0, HOSTILE)).samples)
    assert "<script>" not in table._repr_html_()
    assert "\x1b" not in str(table)


def test_broken_events_show_what_is_left() -> None:
    """A round without step or samples, and an answer without text, are no reason to show nothing."""
    broken = answered(3, "a")
    del broken["samples"][0]["text"]
    events = [answered(0, "a"), {**answered(1, "a"), "samples": None}, broken, {**answered(2, "b"), "step": "x"}]
    assert [0] == [entry.step for entry in view(*events).samples]


def test_the_summary_has_the_last_answer_in_a_line(tmp_path: Path) -> None:
    """Short enough to stand beside the loss, and clean."""
    entry = run_folder(tmp_path / "run")
    rounds = view(answered(0, "a"), answered(25, f"b\n{HOSTILE}" + "c" * 200))
    remarks = Summary.of(entry, rounds, datetime.now(UTC)).remarks
    assert [f"sample, step 25: p0 → b <script>alert(1)</script>{'c' * 27}…"] == [
        remark for remark in remarks if remark.startswith("sample")
    ]
    assert "sample, base: p0 → (nothing)" in Summary.of(entry, view(answered(0, "")), datetime.now(UTC)).remarks
