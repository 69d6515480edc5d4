"""Where a spec comes from: dicts, TOML, job files, keywords, overrides; which one wins; where paths begin."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernel_launcher.errors import InvalidRequest
from kernel_launcher.spec import read_spec
from kernel_launcher.spec.names import SECTIONS
from kernel_launcher.spec.read import parse_gpus, parse_override
from tests.unit.toys import refusal_of

TOML = """
[job]
name = "first"
[model]
base = "./sample/smollm2"
[dataset]
id = "./sample/sft.jsonl"
[method]
type = "sft_text"
lora_rank = 8
max_steps = 30
"""


def test_a_cell_of_toml_is_a_job(tmp_path):
    """The text of a cell gives a spec; its relative paths begin at the notebook's folder."""
    spec = read_spec(TOML, base_dir=tmp_path)
    assert str(tmp_path / "sample/smollm2") == spec.model.base
    assert str(tmp_path / "sample/sft.jsonl") == spec.dataset.id
    assert ("first", 8, 30) == (spec.job.name, spec.method.lora_rank, spec.method.max_steps)


def test_a_model_and_keywords_are_a_job(tmp_path, monkeypatch):
    """train("./sample/smollm2", lora_rank=8) needs no file and no section."""
    monkeypatch.chdir(tmp_path)
    spec = read_spec("./sample/smollm2", settings={"lora_rank": 8, "max_steps": None})
    assert str(tmp_path / "sample/smollm2") == spec.model.base
    assert 8 == spec.method.lora_rank
    assert spec.method.max_steps is None


def test_three_ways_to_write_one_job_give_one_spec(tmp_path):
    """A file, a dict and keyword arguments of the same job are the same spec."""
    file = tmp_path / "job.toml"
    file.write_text(TOML)
    nested = {"model": {"base": "./sample/smollm2"}, "dataset": {"id": "./sample/sft.jsonl"}, "name": "first"}
    from_dict = read_spec({**nested, "hyperparameters": {"lora_rank": 8, "max_steps": 30}}, base_dir=tmp_path)
    keywords = {"dataset_id": "./sample/sft.jsonl", "name": "first", "lora_rank": 8, "max_steps": 30}
    assert read_spec(file) == from_dict
    assert read_spec(str(file)) == read_spec("./sample/smollm2", settings=keywords, base_dir=tmp_path)
    assert from_dict == read_spec(TOML, base_dir=tmp_path)


def test_set_beats_options_and_options_beat_the_file():
    """Three layers, the later wins, whatever name of the setting each of them uses."""
    text = '[model]\nbase = "owner/model"\n[method]\nbatch_size = 1\nlora_rank = 4\nseed = 1\n'
    spec = read_spec(text, settings={"micro_batch_size": 2, "lora_rank": 8}, overrides={"method.batch_size": 3})
    assert (3, 8, 1) == (spec.method.micro_batch_size, spec.method.lora_rank, spec.method.seed)


@pytest.mark.parametrize(
    ("earlier", "later", "kept"),
    [
        ({"gpu_count": 4}, {"gpu_ids": [0, 2]}, {"resources": {"gpu_ids": [0, 2]}}),
        ({"gpu_ids": [0, 2]}, {"gpu_count": 4}, {"resources": {"gpu_count": 4}}),
        ({"max_steps": 30}, {"num_epochs": 2}, {"method": {"num_epochs": 2.0}}),
        ({"num_epochs": 2}, {"max_steps": 30}, {"method": {"max_steps": 30}}),
        ({"warmup_steps": 5}, {"warmup_ratio": 0.1}, {"method": {"warmup_ratio": 0.1}}),
    ],
)
def test_a_later_answer_replaces_an_earlier_one_to_the_same_question(earlier, later, kept):
    """``--gpus 0,2`` over ``gpu_count = 4`` of a file, ``--set num_epochs=2`` over ``max_steps``: both count."""
    expected = {"model": {"base": "owner/model"}, **kept}
    assert expected == read_spec({"base_model": "owner/model", **earlier}, settings=later).to_sections()
    assert expected == read_spec("owner/model", settings=earlier, overrides=later).to_sections()


def test_paths_in_a_file_begin_at_the_file_and_those_of_options_at_the_notebook(tmp_path):
    """A job file can be run from anywhere; what is typed beside it is relative to where one is."""
    jobs, here = tmp_path / "jobs", tmp_path / "here"
    for folder in (jobs / "model", here / "model", here / "other"):
        folder.mkdir(parents=True)
    (jobs / "job.toml").write_text('[model]\nbase = "model"\n[dataset]\nid = "rows.jsonl"\n')
    spec = read_spec("../jobs/job.toml", base_dir=here)
    assert jobs.resolve() / "model" == Path(spec.model.base).resolve()
    assert jobs.resolve() / "rows.jsonl" == Path(spec.dataset.id).resolve()
    assert str(here / "other") == read_spec("../jobs/job.toml", settings={"base": "other"}, base_dir=here).model.base


def test_a_path_wins_over_a_hub_id_and_a_hub_id_stays(tmp_path):
    """What exists is a path; what does not, and looks like none, is left for the hub."""
    (tmp_path / "owner" / "name").mkdir(parents=True)
    assert str(tmp_path / "owner/name") == read_spec("owner/name", base_dir=tmp_path).model.base
    assert "owner/other" == read_spec("owner/other", base_dir=tmp_path).model.base
    assert "Qwen2.5-0.5B" == read_spec("Qwen2.5-0.5B", base_dir=tmp_path).model.base


@pytest.mark.parametrize("given", ["./model", "../model", "/no/such/model", "~/no-such-model"])
def test_what_looks_like_a_path_is_never_a_hub_id(given, tmp_path):
    """A path with its dots, slash or tilde is made absolute, although nothing is there."""
    assert Path(read_spec(given, base_dir=tmp_path).model.base).is_absolute()


@pytest.mark.parametrize("given", ["runs/lr=1e-4/final", "./lr=1e-4", "a b/c", "~nobody-here/x", "x" * 5000, "a\0b"])
def test_any_other_text_is_a_base_model(given, tmp_path):
    """A folder with an equals sign is no TOML, and no name, however long or odd, breaks the reader."""
    assert read_spec(given, base_dir=tmp_path).model.base.endswith(given.removeprefix("./"))


def test_the_interpreter_of_a_virtual_environment_keeps_its_link(tmp_path):
    """A venv's python is a link; resolving it would leave the environment."""
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    spec = read_spec({"base_model": "owner/model", "python": "./python"}, base_dir=tmp_path)
    assert str(link) == spec.resources.python


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("job.yaml", "model: x", "TOML job files only"),
        ("job.toml", "[model\nbase = 1", "is not TOML: Expected ']'"),
        ("job.toml", "base = x", "Text goes in quotes"),
        ("job.toml", "\xff".encode("latin-1"), "cannot be read"),
        ("missing.toml", None, "there is no such job file"),
        ("job.toml", f"x = {'1' * 5000}", "is not TOML"),
        ("job.toml", f"x = {'[' * 3000}{']' * 3000}", "is not TOML"),
    ],
)
def test_a_job_file_that_cannot_be_read_says_why(name, content, said, tmp_path):
    """A missing, broken or foreign job file is one sentence with its place, not a parser's traceback."""
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidRequest, match=said.replace("[", r"\[").replace("]", r"\]")):
        read_spec(name, base_dir=tmp_path)


def test_a_job_file_with_a_byte_order_mark_is_read(tmp_path):
    """Editors on Windows leave a mark at the start; it is no part of the job."""
    (tmp_path / "job.toml").write_text('[model]\nbase = "owner/model"\n', encoding="utf-8-sig")
    assert "owner/model" == read_spec("job.toml", base_dir=tmp_path).model.base


@pytest.mark.parametrize("source", [5, [{"text": "row"}], object()])
def test_a_job_of_another_kind_is_refused(source):
    """Rows in the place of the job are refused with where they go."""
    with pytest.raises(InvalidRequest, match="Give rows as the second argument"):
        read_spec(source)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("lora_rank=8", ("lora_rank", 8)),
        (" method.learning_rate = 1e-4 ", ("method.learning_rate", 1e-4)),
        ("gradient_checkpointing=false", ("gradient_checkpointing", False)),
        ('lora_target_modules=["q_proj", "v_proj"]', ("lora_target_modules", ["q_proj", "v_proj"])),
        ("model.base=./sample/smollm2", ("model.base", "./sample/smollm2")),
        ("model.base=./lr=1e-4", ("model.base", "./lr=1e-4")),
        ('name="8"', ("name", "8")),
        ("name=2026-01-31", ("name", "2026-01-31")),
        ("name=12:30:00", ("name", "12:30:00")),
        ("dataset.prompt=", ("dataset.prompt", "")),
        ("seed=" + "1" * 5000, ("seed", "1" * 5000)),
    ],
)
def test_an_override_is_read_as_toml_or_else_as_text(text, pair):
    """Numbers, booleans and lists are what they look like; anything else needs no quotes."""
    assert pair == parse_override(text)


@pytest.mark.parametrize("text", ["lora_rank", "=8", "  =8", ""])
def test_an_override_needs_key_and_value(text):
    """What is not KEY=VALUE is refused with an example."""
    with pytest.raises(InvalidRequest, match="Write --set lora_rank=8"):
        parse_override(text)


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        (None, {}),
        ("auto", {}),
        (2, {"gpu_count": 2}),
        (np.int64(2), {"gpu_count": 2}),
        ("2", {"gpu_count": 2}),
        (" 2 ", {"gpu_count": 2}),
        ([0, 2], {"gpu_ids": [0, 2]}),
        ((0, 2), {"gpu_ids": [0, 2]}),
        ("0,2", {"gpu_ids": [0, 2]}),
        ("0-3", {"gpu_ids": [0, 1, 2, 3]}),
        ("0-1,3", {"gpu_ids": [0, 1, 3]}),
        ("3,", {"gpu_ids": [3]}),
    ],
)
def test_gpus_are_a_number_or_a_list(given, settings):
    """A number counts, a list chooses, and ``"3,"`` chooses one."""
    assert settings == parse_gpus(given)


@pytest.mark.parametrize("given", ["", ",", "two", "0-", "-1", "1.5", True, 2.0, {"a": 1}, object()])
def test_gpus_that_are_neither_are_refused(given):
    """Anything else is refused with the three ways to write it."""
    with pytest.raises(InvalidRequest, match="Write 2, or 0,2, or 0-3"):
        parse_gpus(given)


keys = st.sampled_from([*SECTIONS, *(name for model in SECTIONS.values() for name in model.model_fields)])
lines = st.builds(
    "{}{}{}".format, keys | st.text(max_size=8), st.sampled_from([" = ", "=", "", "]"]), st.text(max_size=20)
)


@given(st.lists(lines | st.builds("[{}]".format, keys), max_size=6).map("\n".join) | st.text(max_size=60))
@example("\n".join(f"[{section}]" for section in SECTIONS))
@example("model.base = 'x'\n[method]\nlora_rank = inf")
def test_no_text_ever_does_worse_than_a_refusal(text):
    """Whatever is typed into a cell gives a spec or an InvalidRequest."""
    refused = refusal_of(lambda: read_spec(text))
    assert refused is None or refused.faults


@given(st.text(max_size=40))
def test_no_override_ever_does_worse_than_a_refusal(text):
    """Whatever follows --set gives a pair or an InvalidRequest; likewise --gpus."""
    for read in (parse_override, parse_gpus):
        refused = refusal_of(lambda read=read: read(text))
        assert refused is None or refused.faults
