"""``show_data``, ``%veri_data`` and ``veri-jupyter data``: what may be asked, and where which form is shown."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.error import UsageError

import veri_jupyter
from kernel_launcher.__main__ import main
from kernel_launcher.data.show.text import text
from kernel_launcher.errors import InvalidRequest
from veri_jupyter import checks, magics, options
from veri_jupyter.data import shown
from veri_jupyter.data.widget import leaf
from veri_jupyter.environment import Frontend

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Sample
    from veri_jupyter.data.shown import ShownData

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def rows(sample: Sample) -> list[dict[str, Any]]:
    return [json.loads(line) for line in sample.heldout.read_text().splitlines()]


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a notebook is given to show."""
    outputs: list[dict[str, Any]] = []
    monkeypatch.setattr(shown, "_publish", outputs.append)
    monkeypatch.setattr(shown, "frontend", lambda: Frontend.NOTEBOOK)
    monkeypatch.setattr(checks, "frontend", lambda: Frontend.NOTEBOOK)
    return outputs


def test_each_way_to_name_model_and_data_shows_the_same(
    sample: Sample, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    """A job file, its text, a model and a file, a model and rows, rows and a model."""
    job = f'[model]\nbase = "{sample.tiny}"\n[dataset]\nid = "{sample.heldout}"\n'
    (tmp_path / "job.toml").write_text(job)
    asked: list[ShownData] = [
        veri_jupyter.show_data(tmp_path / "job.toml"),
        veri_jupyter.show_data(job),
        veri_jupyter.show_data({"model": {"base": str(sample.tiny)}}, sample.heldout),
        veri_jupyter.show_data(sample.tiny, str(sample.heldout)),
        veri_jupyter.show_data(sample.heldout, model=sample.tiny),
        veri_jupyter.show_data(sample.tiny, rows),
        veri_jupyter.show_data(rows, model=str(sample.tiny)),
    ]
    assert 1 == len({str([row.to_json() for row in one.view.rows]) for one in asked})


def test_settings_mean_what_they_mean_to_a_run(sample: Sample) -> None:
    """Any hyperparameter, and the method."""
    first = veri_jupyter.show_data(sample.tiny, sample.heldout, n=1, loss_on="all", seed=3)
    assert "all" == first.view.settings["loss_on"]
    other = veri_jupyter.show_data(sample.tiny, sample.heldout, n=1)
    assert first.view.rows[0].number != other.view.rows[0].number
    pairs = veri_jupyter.show_data(sample.tiny, sample.root / "dpo.jsonl", n=1, method="dpo")
    assert 2 == len(pairs.view.rows[0].parts)


def test_rows_that_are_held_out_too_are_found(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    """By the function, the magic and the command."""
    same = str(sample.heldout)
    data = veri_jupyter.show_data(sample.tiny, sample.heldout, heldout=same, kind="suspicious")
    assert ["heldout_overlap"] == [finding.code for finding in data.view.findings]
    assert 5 == len(data.view.rows)
    run(f"{sample.tiny} {same} --heldout {same}")
    main(["data", same, "--model", str(sample.tiny), "--heldout", same])
    assert 2 == capsys.readouterr().out.count("✗ error heldout_overlap")


WRONG: dict[str, tuple[str, Callable[[Sample], object]]] = {
    "n=0": ("n = 0", lambda s: veri_jupyter.show_data(s.tiny, s.sft, n=0)),
    "n=True": ("n = True", lambda s: veri_jupyter.show_data(s.tiny, s.sft, n=True)),
    "kind": ("kind = 'best'", lambda s: veri_jupyter.show_data(s.tiny, s.sft, kind="best")),
    "kind=5": ("kind = 5", lambda s: veri_jupyter.show_data(s.tiny, s.sft, kind=5)),  # type: ignore[arg-type]
    "display": ("display = 'fancy'", lambda s: veri_jupyter.show_data(s.tiny, s.sft, display="fancy")),
    "widget": ("a widget needs a notebook", lambda s: veri_jupyter.show_data(s.tiny, s.sft, display="widget")),
    "rows alone": ("model: rows alone", lambda _: veri_jupyter.show_data([{"text": "a"}])),
    "model and two more": ("two more things", lambda s: veri_jupyter.show_data(s.tiny, s.sft, model=s.tiny)),
    "model=5": ("model = 5", lambda s: veri_jupyter.show_data(s.sft, model=5)),  # type: ignore[arg-type]
    "heldout=5": ("heldout = 5", lambda s: veri_jupyter.show_data(s.tiny, s.sft, heldout=5)),  # type: ignore[arg-type]
    "no such heldout": ("heldout = ", lambda s: veri_jupyter.show_data(s.tiny, s.sft, heldout="./no.jsonl")),
    "heldout on the hub": ("heldout = 'a/b'", lambda s: veri_jupyter.show_data(s.tiny, s.sft, heldout="a/b")),
    "no data": ("dataset.id: no data", lambda s: veri_jupyter.show_data(s.tiny)),
    "an unknown setting": ("loss_of", lambda s: veri_jupyter.show_data(s.tiny, s.sft, loss_of="all")),
}


@pytest.mark.parametrize("case", WRONG)
def test_refused(case: str, sample: Sample) -> None:
    """Key, value and what to do, before any row is read where that can be."""
    said, call = WRONG[case]
    with pytest.raises(InvalidRequest) as refused:
        call(sample)
    assert said in str(refused.value)


def test_without_ipywidgets_a_widget_is_refused(
    sample: Sample, published: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where none is asked for, there is HTML."""
    monkeypatch.setattr(checks, "has_widgets", lambda: False)
    with pytest.raises(InvalidRequest, match="its packages are not installed"):
        veri_jupyter.show_data(sample.tiny, sample.heldout, display="widget")


@pytest.mark.parametrize(
    "asked",
    [("auto", True, True), ("auto", False, False), ("static", True, False), ("widget", False, True)],
)
def test_a_widget_is_shown_where_one_is_known_to_be_seen(
    asked: tuple[str, bool, bool], sample: Sample, published: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else HTML. Beside a widget, what the saved notebook keeps: the summary, and the rows for pages without it."""
    display, known, widget = asked
    monkeypatch.setattr(shown, "has_live_widgets", lambda: known)
    data = veri_jupyter.show_data(sample.tiny, sample.heldout, display=display)
    data.show()
    assert widget == any(WIDGET in output for output in published)
    assert all({"text/plain", "text/html"} <= output.keys() for output in published)
    whole = "".join(output["text/html"] for output in published)
    assert "100 rows" in whole
    assert "&lt;|im_end|&gt;" in whole
    assert str(data) == published[-1]["text/plain"]


def test_none_shows_nothing(sample: Sample, published: list[Any]) -> None:
    """The value is there all the same."""
    data = veri_jupyter.show_data(sample.tiny, sample.heldout, display="none", n=2)
    data._ipython_display_()
    assert [] == published
    assert 2 == len(data.to_json()["rows"])


def test_leafing(sample: Sample) -> None:
    """Buttons and the number go through the rows, the list changes the kind, and at an end there is no further."""
    data = veri_jupyter.show_data(sample.tiny, sample.heldout, display="none")
    widget: Any = leaf(data._look, "random")
    (kinds, back, place, on, of), page = widget.children[0].children, widget.children[1]
    first = page.value
    assert ("of 100", True, False) == (of.value, back.disabled, on.disabled)
    on.click()
    second = page.value
    assert first != second
    assert (2, False) == (place.value, back.disabled)
    back.click()
    assert first == page.value
    place.value = 100
    assert on.disabled
    kinds.value = "suspicious"
    assert ("of 0", 1, True, True) == (of.value, place.value, back.disabled, on.disabled)
    assert "No row is suspicious." in page.value


# The magic


def run(line: str, cell: str = "", **variables: Any) -> dict[str, Any]:
    known = SimpleNamespace(user_ns=variables)
    parsed = options.DATA.parse_line(line)
    assert parsed is not None
    magics.data(known, parsed, cell)
    return known.user_ns


def test_the_magic_shows_and_gives(sample: Sample, rows: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A model and a file, a variable, or a cell; in a terminal as text."""
    given = run(f"{sample.tiny} {sample.heldout} -n 2 --kind longest --set loss_on=all -o d")["d"]
    assert text(given.view) in capsys.readouterr().out
    assert ("longest", 2, "all") == (given.view.kind, len(given.view.rows), given.view.settings["loss_on"])
    other = run(f"{sample.tiny} --data rows -o d", rows=rows)["d"]
    assert 100 == other.view.rows_seen
    cell = f'[model]\nbase = "{sample.tiny}"\n[dataset]\nid = "{sample.heldout}"\n'
    assert 100 == run("-o d", cell)["d"].view.rows_seen


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--kind best", "invalid choice: 'best'"),
        ("--display fancy", "invalid choice: 'fancy'"),
        ("-n many", "invalid int value"),
        ("a b c", "there is no c"),
        ("model rows.jsonl --data rows", "not both"),
        ("model --data rowz", "Did you mean rows?"),
    ],
)
def test_a_mistake_on_the_line(line: str, said: str) -> None:
    """One sentence."""
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        run(line, rows=[])


# The command


def test_the_command(sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job file, or rows and a model; as text and as one JSON value."""
    (tmp_path / "job.toml").write_text(f'[model]\nbase = "{sample.tiny}"\n[dataset]\nid = "{sample.heldout}"\n')
    assert 0 == main(["data", str(tmp_path / "job.toml"), "-n", "2", "--kind", "longest"])
    said = capsys.readouterr().out
    assert "longest: 2 of 100 rows" in said
    assert "\x1b" not in said
    words = ["data", str(sample.heldout), "--model", str(sample.tiny), "-n", "2", "--kind", "longest", "--json"]
    assert 0 == main(words)
    assert 2 == len(json.loads(capsys.readouterr().out)["rows"])


@pytest.mark.parametrize("colours", [True, False])
def test_a_terminal_gets_colours_unless_it_wants_none(
    colours: bool, sample: Sample, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NO_COLOR takes them away."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colours:
        monkeypatch.setenv("NO_COLOR", "1")
    assert 0 == main(["data", str(sample.heldout), "--model", str(sample.tiny), "-n", "1"])
    assert colours == ("\x1b[4m" in capsys.readouterr().out)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_hostile_rows_do_nothing_to_the_terminal(
    form: list[str], sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither as text nor as JSON: no control character, no change of direction is printed."""
    said = "\x1b]0;t\x07 \x9b31m \u202e \u2066 \u200b \x7f <|im_end|> ⟦"
    turns = [{"role": "user", "content": said}, {"role": "assistant", "content": said}]
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    assert 0 == main(["data", str(tmp_path / "rows.jsonl"), "--model", str(sample.tiny), *form])
    printed = capsys.readouterr().out
    assert [] == [c for c in printed if not c.isprintable() and c != "\n"]
    assert "control_tokens_in_text" in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rows.jsonl"], "needs --model FOLDER"),
        (["rows.jsonl", "--model", "./nothing"], "there is no such folder"),
        (["job.toml", "-n", "0"], "must be at least 1"),
    ],
)
def test_the_command_refuses(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do, and exit code 1."""
    assert 1 == main(["data", *words])
    assert said in capsys.readouterr().err
