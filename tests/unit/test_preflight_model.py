"""What a model folder lacks for a job is said in the cell, and what would work is not refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.errors import InvalidRequest
from kernel_launcher.preflight import prepare
from kernel_launcher.preflight.model import check_model, model_stamp
from kernel_launcher.spec import read_spec
from tests.unit.toys import ROWS, model_folder

if TYPE_CHECKING:
    from pathlib import Path

CHATS = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}]
CODE = {"AutoConfig": "my.MyConfig", "AutoModelForCausalLM": "my.MyModel"}


def faults(model: Path, rows: object, **settings: Any) -> list[str]:
    try:
        prepare(read_spec(str(model), settings={"gpu_type": "CPU", "gpu_count": 1, **settings}), rows, to_run=False)
    except InvalidRequest as error:
        return [str(fault) for fault in error.faults]
    return []


def test_chats_for_a_model_without_a_chat_template_are_refused(tmp_path: Path) -> None:
    """From a variable and from a file; with the two ways out. Plain rows, a template, or own code: nothing to say."""
    model = model_folder(tmp_path / "model")
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*ROWS, *CHATS]))
    for found in (faults(model, CHATS), faults(model, None, dataset_id=str(path))):
        [fault] = found
        assert "the model has no chat template." in fault
        assert 'Name one, chat_template = "chatml" or your own file, or give prompt and completion, or text.' in fault
    assert [] == faults(model, ROWS)
    assert [] == faults(model, CHATS, trust_remote_code=True)
    assert [] == faults(model, CHATS, chat_template="chatml")
    (model / "chat_template.jinja").write_text("{{ messages }}")
    assert [] == faults(model, CHATS)


def test_a_chat_template_that_cannot_be_had_is_refused(tmp_path: Path) -> None:
    """A name that is none, a file that is not there, one that is no jinja: with the names that there are."""
    model = model_folder(tmp_path / "model")
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% for m in messages %}")
    for given, reason in [
        ("chatlm", "chat_template = 'chatlm': is neither a file nor a name."),
        (str(tmp_path / "gone.jinja"), "is neither a file nor a name."),
        (str(broken), "is no jinja template: "),
    ]:
        [fault] = faults(model, CHATS, chat_template=given)
        assert reason in fault
        assert "one of alpaca, chatml, gemma, llama3, mistral, vicuna, zephyr" in fault


def test_a_job_with_an_edited_template_is_another_job(tmp_path: Path) -> None:
    model = model_folder(tmp_path / "model")
    path = tmp_path / "chat.jinja"
    stamps = []
    for text in ("{{ messages }}", "{{ messages[0].content }}"):
        path.write_text(text)
        settings = {"base_model": str(model), "chat_template": "./chat.jinja"}
        spec = read_spec(settings, base_dir=tmp_path)
        assert str(path) == spec.method.chat_template
        stamps.append(model_stamp(spec))
    assert stamps[0] != stamps[1]


def test_a_folder_with_the_name_of_a_template_does_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "alpaca").mkdir()
    spec = read_spec({"base_model": "owner/model", "chat_template": "alpaca"}, base_dir=tmp_path)
    assert "alpaca" == spec.method.chat_template


@pytest.mark.parametrize("base", ["owner/model", "x" * 5000])
def test_the_template_of_a_model_that_is_not_here_is_no_matter_of_the_cell(base: str) -> None:
    """A hub id is looked at in the job; what is no model has a fault of its own."""
    assert not any("chat template" in fault for fault in faults(base, CHATS))  # type: ignore[arg-type]


@pytest.mark.torch
@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "myq", "auto_map": CODE},
        {"auto_map": CODE},
        {"model_type": "qwen3", "auto_map": CODE},
        {"model_type": "gpt-sw3", "auto_map": CODE},
        {"model_type": "qwen3", "auto_map": {"AutoModelForCausalLM": "my.MyModel"}},
        {"model_type": "qwen3"},
    ],
)
def test_own_code_is_asked_for_where_transformers_asks_for_it(config: dict[str, Any], tmp_path: Path) -> None:
    """That is only where it has no class of its own; with the permission there is nothing to say."""
    from transformers import AutoConfig

    model = model_folder(tmp_path / "model")
    (model / "config.json").write_text(json.dumps(config))
    try:
        AutoConfig.from_pretrained(model, trust_remote_code=False)
        expected = []
    except ValueError as error:
        expected = ["model.trust_remote_code"] if "trust_remote_code=True" in str(error) else []
    spec = {"base_model": str(model), "lora_rank": 4}
    assert expected == [fault.key for fault in check_model(read_spec(spec))[1]]
    assert [] == check_model(read_spec({**spec, "trust_remote_code": True}))[1]
