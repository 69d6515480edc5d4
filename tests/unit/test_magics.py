"""The line of a magic: what it means, and that it is never evaluated."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.error import UsageError

from veri_jupyter import magics, options, start


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the line asked of ``start.prepare``."""
    seen: dict[str, Any] = {}

    def prepare(source: Any, data: Any, settings: Any, **asked: Any) -> Any:
        seen.update(source=source, data=data, settings=settings, **asked)
        return SimpleNamespace(plan=SimpleNamespace(describe=list))

    monkeypatch.setattr(start, "prepare", prepare)
    return seen


def plan(line: str, cell: str = "", **variables: Any) -> dict[str, Any]:
    shell = SimpleNamespace(user_ns=variables)
    parsed = options.PLAN.parse_line(line)
    assert parsed is not None
    magics.plan(shell, parsed, cell)
    return shell.user_ns


def test_the_line_becomes_settings_and_set_beats_them(asked: dict[str, Any]) -> None:
    """Options are settings, --set pairs are overrides, read as TOML where they are TOML."""
    rows = [{"text": "a"}]
    after = plan("job.toml --gpus 0,2 --gpu-type CPU --data df --set lora_rank=8 --set 'a=[\"b\"]' -o p", df=rows)
    assert "job.toml" == asked["source"]
    assert asked["data"] is rows
    assert {"job.name": None, "resources.gpu_type": "CPU", "resources.gpu_ids": [0, 2]} == asked["settings"]
    assert {"lora_rank": 8, "a": ["b"]} == asked["overrides"]
    assert after["p"].describe() == []


def test_what_is_asked_of_a_plan_beside_the_job(asked: dict[str, Any]) -> None:
    """The hub and the tracker are asked when the line says so."""
    plan("job.toml")
    assert (False, False) == (asked["ask_hub"], asked["trace"])
    plan("job.toml --hub --trace")
    assert (True, True) == (asked["ask_hub"], asked["trace"])


def test_the_cell_is_the_source(asked: dict[str, Any]) -> None:
    """The body goes along as it is; a body of blanks is none."""
    plan("", "[model]\nbase = 'x'\n")
    assert "[model]\nbase = 'x'\n" == asked["source"]
    plan("./model", "\n  \n")
    assert "./model" == asked["source"]


def test_both_a_file_and_a_cell_are_refused(asked: dict[str, Any]) -> None:
    """Which one wins would be a guess."""
    with pytest.raises(UsageError, match="not both"):
        plan("job.toml", "[model]\nbase = 'x'\n")
    assert {} == asked


def test_text_on_the_line_is_never_evaluated(asked: dict[str, Any]) -> None:
    """Code stays text."""
    plan("x --set 'name=__import__(\"os\").getcwd()'")
    assert {"name": '__import__("os").getcwd()'} == asked["overrides"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--gpu 2", "there is no --gpu. Did you mean --gpus?"),
        ("--xyz", "It takes --help, --gpus"),
        ("--display fancy", "invalid choice: 'fancy'"),
        ("--display widgets", "invalid choice: 'widgets'"),
        ("-o 1x", "'1x' is no name for a variable"),
        ("-o class", "'class' is no name for a variable"),
        ("--gpus", "expected one argument"),
        ("'open", "No closing quotation"),
    ],
)
def test_a_mistake_is_a_usage_error_itself(line: str, said: str) -> None:
    """Not a subclass of it: IPython prints a traceback for those."""
    with pytest.raises(UsageError) as caught:
        options.TRAIN.parse_line(line)
    assert UsageError is caught.type
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("parser", "line"),
    [
        (options.TRAIN, "--token=hf_abcdefghijklmnop1234"),
        (options.TRAIN, "--token=a_word"),
        (options.TRAIN, "x 'hf_abcdefghijklmnop1234"),
        (options.TRAIN, "--display hf_abcdefghijklmnop1234"),
        (options.TRAIN, "-o 5hf_abcdefghijklmnop1234"),
        (options.LOGS, "x -n hf_abcdefghijklmnop1234"),
        (options.LOGS, "x --rank a_word_that_is_secret"),
        (options.JOBS, "hf_abcdefghijklmnop1234"),
    ],
)
def test_no_mistake_repeats_a_token(parser: options.Parser, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that looks like a token, nor the value of a variable that holds one, nor of an unknown option."""
    monkeypatch.setenv("HF_TOKEN", "a_word_that_is_secret")
    with pytest.raises(UsageError) as caught:
        parser.parse_line(line)
    assert {"hf_abc", "a_word"}.isdisjoint([word for word in ("hf_abc", "a_word") if word in str(caught.value)])


@pytest.mark.parametrize(
    ("line", "cell"), [("--data hf_abcdefghijklmnop1234", ""), ("hf_abcdefghijklmnop1234", "[model]")]
)
def test_no_mistake_in_what_a_line_names_repeats_a_token(asked: dict[str, Any], line: str, cell: str) -> None:
    """A variable that is not there, a file beside a cell."""
    with pytest.raises(UsageError) as caught:
        plan(line, cell)
    assert "***" in str(caught.value)
    assert "hf_abc" not in str(caught.value)


def test_help_is_printed_whatever_else_stands_there(capsys: pytest.CaptureFixture[str]) -> None:
    """--help asks for nothing else."""
    assert options.LOGS.parse_line("--help --rank x") is None
    assert "usage: %veri_logs" in capsys.readouterr().out


def test_the_options_are_those_of_the_contract() -> None:
    """Each magic takes these, and no other."""
    job = ["--help", "--gpus", "--gpu-type", "--data", "--set", "-o"]
    train = ["--name", "--dry-run", "--wait", "--again", "--after", "--display"]
    assert [*job, *train] == options.TRAIN.flags()
    assert [*job, "--hub", "--trace"] == options.PLAN.flags()
    assert [*job, "--display"] == options.EXPLORE.flags()
    assert ["--help", "-n", "--rank"] == options.LOGS.flags()
    assert ["--help", "--now"] == options.STOP.flags()
    assert Namespace(help=False, id="last", display="auto") == options.ATTACH.parse_line("last")
