"""A job as a cell, a call, a job file, and back: the same spec, whoever reads it; and nothing is evaluated."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

import veri_jupyter
from kernel_launcher.errors import InvalidRequest
from kernel_launcher.spec import read_spec
from kernel_launcher.spec.names import SECTIONS, locate
from tests.unit.explorer_toys import EDITS, QWEN, edited
from tests.unit.toys import refusal_of
from veri_jupyter import options, start
from veri_jupyter.explorer import text
from veri_jupyter.explorer.begin import begin
from veri_jupyter.explorer.fields import as_text, as_value
from veri_jupyter.explorer.knobs import knob
from veri_jupyter.explorer.state import State, judge

if TYPE_CHECKING:
    from pathlib import Path

CELL = """%%veri_train --data df --gpus 4 --gpu-type L4-24GB --set lora_rank=8
[model]
base = "Qwen/Qwen3-4B"
[method]
max_seq_length = 2048
"""
CALL = """
import veri_jupyter
job = veri_jupyter.train("Qwen/Qwen3-4B", df, gpus=4, gpu_type="L4-24GB", lora_rank=8, max_seq_length=2048)
"""
MEANT = {
    "model.base": "Qwen/Qwen3-4B",
    "resources.gpu_count": 4,
    "resources.gpu_type": "L4-24GB",
    "method.lora_rank": 8,
    "method.max_seq_length": 2048,
}


@given(EDITS)
def test_every_form_is_read_back(edits: list[tuple[str, Any]]) -> None:
    """State to text to state changes nothing, right or wrong as the settings may be."""
    for rows in ("", "df"):
        state = edited(edits).with_rows(rows) if rows else edited(edits)
        for form, write in text.FORMS.items():
            again = text.read(write(state))
            # A job file cannot name a variable.
            assert repr(State(dict(sorted(state.settings.items())), "" if form == "TOML" else rows)) == repr(
                State(dict(sorted(again.settings.items())), again.rows)
            )
            assert write(again).strip() in (write(state).strip(), write(State(state.settings)).strip())


@given(EDITS)
def test_who_runs_the_text_gets_the_same_spec(edits: list[tuple[str, Any]]) -> None:
    """A cell through its magic's parser, a call through ``train``, a job file through its reader."""
    state = edited(edits)
    spec = judge(state).spec
    if spec is None:
        return
    assert spec == read_spec(text.to_toml(state))
    line, _, body = text.to_cell(state.with_rows("df").set({"dataset.id": None})).partition("\n")
    asked = options.TRAIN.parse_line(line.removeprefix("%%veri_train"))
    assert asked is not None
    assert "df" == asked.data
    assert spec.model_copy(update={"dataset": spec.dataset.model_copy(update={"id": None})}) == read_spec(body)
    (call,) = (node for node in ast.walk(ast.parse(text.to_python(state))) if isinstance(node, ast.Call))
    arguments: Any = [ast.literal_eval(argument) for argument in call.args]
    settings: dict[str, Any] = {}
    for keyword in call.keywords:
        value = ast.literal_eval(keyword.value)
        settings |= value if keyword.arg is None else {keyword.arg: value}
    assert spec == _trained(*arguments, **settings)


def _trained(*arguments: Any, **settings: Any) -> Any:
    """What ``train`` would prepare."""
    seen: list[Any] = []

    def prepare(spec: Any, *_: Any, **__: Any) -> Any:
        seen.append(spec)
        raise InvalidRequest([])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start.preflight, "prepare", prepare)
        refusal_of(lambda: veri_jupyter.train(*arguments, **settings))
    return seen[0]


@pytest.mark.parametrize("pasted", [CELL, CALL, CALL.replace("train(", "plan(")])
def test_what_people_paste(pasted: str) -> None:
    """A cell with options, a call."""
    state = text.read(pasted)
    assert MEANT == state.settings
    assert "df" == state.rows


def test_a_model_alone_and_a_job_file(tmp_path: Path) -> None:
    """An id is a job, too; a file's paths are relative to the file."""
    assert {"model.base": "Qwen/Qwen3-4B"} == text.read(" Qwen/Qwen3-4B\n").settings
    file = tmp_path / "job.toml"
    file.write_text('[model]\nbase = "./model"\n')
    assert {"model.base": str(tmp_path / "model")} == text.read(str(file)).settings
    assert {} == text.read("").settings


@pytest.mark.parametrize(
    ("pasted", "said"),
    [
        ("[model\nbase = 1", "is not TOML"),
        ("%%veri_stop last", "%veri_stop describes no job"),
        ("%veri_train --gpu 2", "there is no --gpu"),
        ("%veri_train --help", "--help describes no job"),
        ("%veri_train --gpus many x", "neither a number of GPUs"),
        ("train('x', lora_rank=__import__('os').getpid())", "is not a plain value"),
        ("train('x'", "is not Python"),
        ("plan(plan(", "is not Python"),
        ("'train('", "calls neither train nor plan"),
        ("./missing.toml", "there is no such job file"),
    ],
)
def test_what_cannot_be_read_is_refused(pasted: str, said: str) -> None:
    """With the reason; nothing of it was run."""
    refused = refusal_of(lambda: text.read(pasted))
    assert refused is not None
    assert said in str(refused)


def test_a_wrong_setting_in_a_text_stands_in_the_form() -> None:
    """It is refused beside its field, and not with the whole text."""
    state = text.read('[method]\nprecision = "fp16"\nlora = 8\n[model]\nbase = "x"')
    assert {"method.precision", "method.lora"} == {fault.key for fault in judge(state).faults}


def test_every_setting_has_its_name_in_a_call() -> None:
    """The bare name of each field means that field."""
    for section, model in SECTIONS.items():
        for name in model.model_fields:
            assert f"{section}.{name}" == locate(name)


def test_it_reads_as_people_write() -> None:
    """Model first, texts in double quotes, GPUs by their short name."""
    state = QWEN.with_rows("df")
    assert text.to_toml(state).splitlines()[2] == "[model]"
    assert text.to_cell(state).startswith("%%veri_train --data df\n[model]\n")
    assert '    "Qwen/Qwen3-8B",\n    df,\n    gpu_type="L4-24GB",\n    gpus=4,\n' in text.to_python(state)


@pytest.mark.parametrize(
    ("key", "typed", "value"),
    [
        ("method.max_seq_length", " 2,048 ", 2048),
        ("method.learning_rate", "2e-4", 2e-4),
        ("method.micro_batch_size", "auto", "auto"),
        ("method.micro_batch_size", "two", "two"),
        ("method.seed", "", None),
        ("model.base", "./m", "./m"),
        ("method.lora_target_modules", "q_proj, v_proj", ["q_proj", "v_proj"]),
        ("resources.gpu_ids", "0, 2", [0, 2]),
    ],
)
def test_what_is_typed(key: str, typed: str, value: Any) -> None:
    """Numbers as people write them; what is none is kept, to be refused by name."""
    found = knob(key)
    assert found is not None
    assert value == as_value(found, typed)
    if value is not None:
        assert value == as_value(found, as_text(value))


def test_what_it_begins_with() -> None:
    """A dict, a text, rows that have a name or get one, settings that beat the source."""
    rows = [{"text": "a"}]
    state, variables = begin(
        {"base_model": "m", "lora_rank": 8}, rows, {"lora_rank": 4, "model.base": None}, {"df": rows}
    )
    assert {"model.base": "m", "method.lora_rank": 4} == state.settings
    assert ("df", rows) == (state.rows, variables["df"])
    state, variables = begin("m", rows, {}, {})
    assert ("rows", rows) == (state.rows, variables["rows"])
    state, _ = begin("m", "./rows.jsonl", {}, {})
    assert "./rows.jsonl" == state.settings["dataset.id"]
    assert State({}) == begin(None, None, {}, {})[0]
    assert refusal_of(lambda: begin(7, None, {}, {})) is not None
