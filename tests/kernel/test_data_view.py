"""``%veri_data`` in a real kernel of the core install: no torch, HTML that stays, a widget where a page shows one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Sample
    from tests.kernel.kernels import Kernel, Reply

HEAVY = "torch", "transformers", "datasets", "pandas", "plotly", "ipywidgets"
WIDGET = "application/vnd.jupyter.widget-view+json"


def heavy(kernel: Kernel) -> Any:
    """The heavy modules that the kernel has imported."""
    said = kernel.run(f"import json, sys; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))").stdout
    return json.loads(said)


def test_a_line_shows_what_the_model_learns(kernel: Kernel, sample: Sample) -> None:
    """As HTML and as text, within the cell, and nothing heavy is imported for it."""
    reply = kernel.run(f"%veri_data {sample.tiny} {sample.sft} -n 3 -o seen")
    assert ("ok", "") == (reply.status, reply.stderr)
    (output,) = reply.shown
    assert {"text/plain", "text/html"} == output.keys()
    assert "600 rows" in output["text/plain"]
    assert "⟦" in output["text/plain"]
    assert 3 == output["text/html"].count('<div class="row"')
    assert [] == heavy(kernel)
    assert "3 random" == kernel.run("print(len(seen.view.rows), seen.view.kind)").stdout.strip()


def test_a_cell_and_a_variable(kernel: Kernel, sample: Sample) -> None:
    """The same as TOML, with rows of a variable; a value at the end of a cell shows itself once."""
    kernel.run(f"rows = [__import__('json').loads(line) for line in open({str(sample.heldout)!r})]")
    reply = kernel.run(f"%%veri_data --data rows --kind longest\n[model]\nbase = '{sample.tiny}'")
    assert "longest: 5 of 100 rows" in reply.shown[0]["text/plain"]
    again = kernel.run(
        f"import veri_jupyter\nveri_jupyter.show_data(rows, model={str(sample.tiny)!r}, kind='longest')"
    )
    assert [reply.shown[0]["text/plain"]] == [output["text/plain"] for output in again.shown]


def test_hostile_rows_stay_text(kernel: Kernel, sample: Sample) -> None:
    """Neither markup nor an escape of theirs arrives at the page."""
    kernel.run("bad = '<script>alert(1)</script>\\x1b[31m\\u202e\"onload=\"'")
    kernel.run("rows = [{'prompt': bad, 'completion': bad}] * 2")
    (output,) = kernel.run(f"%veri_data {sample.tiny} --data rows").shown
    assert "<script" not in output["text/html"]
    assert "\x1b" not in output["text/html"] + output["text/plain"]
    assert "\u202e" not in output["text/html"] + output["text/plain"]


@pytest.mark.parametrize(
    ("line", "ename", "said"),
    [
        ("{tiny} ./nothing.jsonl", "InvalidRequest", "nothing.jsonl"),
        ("{tiny}", "InvalidRequest", "no data"),
        ("{tiny} some/rows", "InvalidRequest", "its rows are on the hub"),
        ("{tiny} --data rowz", "UsageError", "there is no such variable"),
        ("{tiny} {sft} -n 0", "InvalidRequest", "n = 0"),
        ("{tiny} {sft} --kind best", "UsageError", "invalid choice"),
    ],
)
def test_refused(line: str, ename: str, said: str, kernel: Kernel, sample: Sample) -> None:
    """One clear error in the cell."""
    reply = kernel.run(f"%veri_data {line.format(tiny=sample.tiny, sft=sample.sft)}")
    words = "\n".join(reply.traceback) + reply.stderr
    assert said in words
    assert "Traceback" not in words
    assert ename == (reply.ename or "UsageError")


def test_tab_offers_kinds_displays_and_settings(kernel: Kernel) -> None:
    """What the options take."""
    assert ["cut", "longest", "random", "suspicious"] == sorted(kernel.complete("%veri_data --kind "))
    assert ["auto", "none", "static", "widget"] == sorted(kernel.complete("%veri_data --display "))
    assert "loss_on=" in kernel.complete("%veri_data --set loss")


def test_a_notebook_that_a_person_opened_gets_a_widget(kernel: Kernel, sample: Sample) -> None:
    """Jupyter Server names it to its kernel; the saved notebook keeps summary and rows as HTML."""
    asked = f"%veri_data {sample.tiny} {sample.sft}"
    kernel.run("import os; os.environ['JPY_SESSION_NAME'] = 'x.ipynb'")
    reply: Reply = kernel.run(asked)
    assert [False, True] == [WIDGET in output for output in reply.shown]
    assert all("text/html" in output for output in reply.shown)
    assert 1 == len(kernel.run(f"{asked} --display static").shown)
    assert [] == kernel.run(f"{asked} --display none").shown
    assert 1 == len(kernel.run(asked, interactive=False).shown)
