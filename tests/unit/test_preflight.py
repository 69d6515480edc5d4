"""The last checks before a process starts, and what they leave for the launcher."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from kernel_launcher import __version__
from kernel_launcher.errors import InvalidRequest
from kernel_launcher.facts import machine
from kernel_launcher.planner import Hardware, Plan
from kernel_launcher.preflight import environment, prepare
from kernel_launcher.preflight.environment import NEEDED, environment_faults
from kernel_launcher.protocol.paths import RunDir
from kernel_launcher.spec import JobSpec, read_spec
from tests.unit.toys import CPU, ROWS, model_folder, prepared

if TYPE_CHECKING:
    from pathlib import Path

L4S = Hardware(gpu_type="L4-24GB", gpu_memory_bytes=(24 * 10**9,) * 4, cores=8, host_memory_bytes=64 * 10**9)


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    on_machine(monkeypatch, CPU)
    monkeypatch.setattr(environment, "_version", lambda _: "1.0")


def on_machine(monkeypatch, hardware):
    monkeypatch.setattr(machine, "this_machine", lambda: hardware)
    monkeypatch.setattr("kernel_launcher.preflight.resources.this_machine", lambda: hardware)


def job(model: Path, **settings: object) -> JobSpec:
    return read_spec(str(model), settings={"lora_rank": 4, **settings})


def refusals(spec: JobSpec, rows: object = None, *, to_run: bool = True) -> dict[str, str]:
    """Key and code of each fault."""
    with pytest.raises(InvalidRequest) as caught:
        prepare(spec, rows, to_run=to_run)
    return {fault.key: fault.code for fault in caught.value.faults}


def test_a_good_job_is_checked_planned_and_written(tmp_path):
    """What the ranks read from the run folder is what was asked and decided, and the notebook's rows as they were."""
    ready = prepare(job(model_folder(tmp_path / "model")), ROWS)
    run = RunDir(tmp_path / "run")
    run.create()
    ready.write(run, job={"id": "x"})
    stored = json.loads(run.spec.read_text())
    assert ready.spec == JobSpec.from_sections(stored["spec"])
    assert ready.plan == Plan.from_json(json.loads(run.plan.read_text()))
    assert {"id": "x"} == stored["job"]
    assert str(run.snapshot) == stored["data"]["path"]
    assert ROWS == [json.loads(line) for line in run.snapshot.read_text().splitlines()]


def test_everything_that_is_wrong_comes_at_once(tmp_path):
    """Model, GPUs, environment, data and batch: one try finds all of them."""
    found = refusals(job(tmp_path / "nothing", gpu_count=3, python="/no/python"))
    assert {"model.base", "resources.gpu_count", "resources.python", "dataset.id"} == set(found)
    assert "model_load_error" == found["model.base"]
    found = refusals(job(tmp_path / "nothing", global_batch_size=7))
    assert {"model.base", "dataset.id", "method.global_batch_size"} == set(found)


def test_a_plan_needs_neither_data_nor_gpus(tmp_path):
    """One can plan for a machine that is elsewhere, without rows; to run there is refused."""
    spec = job(model_folder(tmp_path / "model"), gpu_type="H100-80GB", gpu_count=8)
    ready = prepare(spec, to_run=False)
    assert ready.data is None
    assert (8, "H100-80GB") == (ready.plan.world_size, ready.plan.resources.gpu_type)
    assert {"resources.gpu_type", "dataset.id"} == set(refusals(spec))


def test_data_that_is_named_is_checked_for_a_plan_too(tmp_path):
    """A plan that was given rows says when they are no rows, or not here."""
    (tmp_path / "no.jsonl").write_text("no rows")
    named = job(model_folder(tmp_path / "m"), dataset_id=str(tmp_path / "no.jsonl"))
    assert {"dataset.id"} == set(refusals(named, to_run=False))
    (tmp_path / "no.jsonl").unlink()
    assert any("no.jsonl is not here" in warning for warning in prepare(named, to_run=False).plan.warnings)
    assert {"dataset.id"} == set(refusals(named))


def test_a_plan_needs_no_weights(tmp_path):
    """A config.json is enough to plan; to run, the folder must be whole."""
    folder = model_folder(tmp_path / "model")
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).unlink()
    assert prepare(job(folder), to_run=False).plan.estimate.param_count is None
    assert "model.base" in refusals(job(folder))


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"gpu_count": 5}, "resources.gpu_count"),
        ({"gpu_ids": [0, 4]}, "resources.gpu_ids"),
        ({"gpu_type": "H100-80GB"}, "resources.gpu_type"),
        ({"gpu_type": "CPU", "gpu_ids": [0]}, "resources.gpu_ids"),
        ({"gpu_type": "CPU", "gpu_count": 8}, None),
        ({"gpu_ids": [3, 0]}, None),
        ({"gpu_type": "L4-24GB", "gpu_count": 4}, None),
        ({}, None),
    ],
)
def test_gpus_that_are_not_here_are_refused(settings, key, tmp_path, monkeypatch):
    """More ranks than GPUs, an index or a kind that is not here: said before anything starts."""
    on_machine(monkeypatch, L4S)
    spec = job(model_folder(tmp_path / "model"), **settings)
    if key is None:
        assert prepare(spec, ROWS).plan.world_size >= 1
    else:
        assert [key] == list(refusals(spec, ROWS))


@pytest.mark.parametrize("base", ["owner/model", "model", "Qwen/Qwen2.5-0.5B"])
def test_a_hub_id_is_left_for_the_job(base):
    """What looks like a hub id and is no folder here is planned with unknown facts."""
    assert prepare(read_spec(base, settings={"lora_rank": 4}), to_run=False).plan.estimate.param_count is None


@pytest.mark.parametrize(
    "base", ["a/b/c", "owner/", "-x/y", "owner/na me", "x" * 97, "x" * 5000, "owner/modèle", "~nobody/x"]
)
def test_what_cannot_be_a_hub_id_is_a_missing_folder(base):
    """A typo is refused here in the cell, not by a download that fails in the job."""
    assert {"model.base": "model_load_error"} == refusals(read_spec(base, settings={"lora_rank": 4}), to_run=False)


def test_a_missing_folder_is_answered_with_the_nearest(tmp_path):
    """The folder with the most similar name is offered, not the first of the alphabet."""
    for name in ("another", "smollm2", "tiny"):
        model_folder(tmp_path / name)
    with pytest.raises(InvalidRequest, match=f"Did you mean {tmp_path}/tiny?"):
        prepare(job(tmp_path / "tinny"), to_run=False)


def test_the_kernels_own_environment_is_asked_for_its_packages(tmp_path, monkeypatch):
    """A package that is missing is named, with the line that installs it."""
    monkeypatch.setattr(environment, "_version", lambda name: None if name in ("trl", "peft") else "1.0")
    with pytest.raises(InvalidRequest, match=r'lacks trl, peft\. pip install "veri-jupyter\[train\]"') as caught:
        prepare(job(model_folder(tmp_path / "model")), ROWS)
    assert "dependency_error" == caught.value.code


def python_that_says(path: Path, answer: str) -> str:
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return str(path)


COMPLETE = json.dumps({"veri-jupyter": __version__, **dict.fromkeys(NEEDED, "1.0")})


def test_another_environment_is_asked_each_time(tmp_path):
    """After a pip install the cell works without a restart of the kernel: an answer is not remembered."""
    python = python_that_says(tmp_path / "python", f"echo '{COMPLETE}'")
    assert [] == list(environment_faults(python))
    python_that_says(tmp_path / "python", f"echo '{json.dumps({'veri-jupyter': __version__, 'torch': None})}'")
    assert ["that environment lacks torch."] == [fault.reason for fault in environment_faults(python)]
    python_that_says(tmp_path / "python", f"echo '{COMPLETE}'")
    assert [] == list(environment_faults(python))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("exit 3", "does not run: it ended with exit code 3."),
        ("echo one >&2; echo two >&2; exit 1", "does not run: two."),
        ("echo hello", "does not run: it answered with something else."),
        ("echo", "does not run: it answered with something else."),
    ],
)
def test_an_interpreter_that_is_none_says_why(answer, reason, tmp_path):
    """The last word of the program that was named is what the person reads, not our command line."""
    faults = list(environment_faults(python_that_says(tmp_path / "python", answer)))
    assert [reason] == [fault.reason for fault in faults]


def test_this_very_interpreter_is_an_environment():
    """The question that is put to another interpreter is understood by a real one."""
    answer = environment._ask(sys.executable)
    assert isinstance(answer, dict)
    assert {"veri-jupyter", *NEEDED, *environment.OPTIONAL} == set(answer)
    assert __version__ == answer["veri-jupyter"]


@pytest.mark.parametrize(
    ("base", "name"),
    [
        ("./sample/smollm2", "smollm2"),
        ("HuggingFaceTB/SmolLM2-135M", "SmolLM2-135M"),
        ("./my model (1)", "my-model--1"),
        ("./modèle", "mod-le"),
        ("./...", "job"),
        ("./" + "x" * 80, "x" * 64),
    ],
)
def test_a_job_without_a_name_is_named_after_its_model(base, name):
    """The default name is one that a person could have given."""
    assert name == prepared(base_model=base).default_name
    assert name == read_spec(base, settings={"name": name}).job.name


def test_the_same_work_has_the_same_fingerprint(tmp_path):
    """The same rows from a variable and again from a variable are the same job; other rows, or a setting, are not."""
    model = model_folder(tmp_path / "model")
    first = prepare(job(model), ROWS).fingerprint
    assert first == prepare(job(model, name="other"), [dict(row) for row in ROWS]).fingerprint
    assert first != prepare(job(model), [*ROWS, ROWS[0]]).fingerprint
    assert first != prepare(job(model, max_steps=3), ROWS).fingerprint


def test_a_base_model_that_was_changed_is_other_work(tmp_path):
    """Weights that were written anew under the same name are trained anew."""
    model = model_folder(tmp_path / "model")
    before = prepare(job(model), ROWS).fingerprint
    weights = next(model.glob("*.safetensors"))
    os.utime(weights, ns=(1, 1))
    assert before != prepare(job(model), ROWS).fingerprint


@pytest.mark.parametrize(("setting", "key"), [("revision", "model.revision"), ("split", "dataset.split")])
def test_a_setting_for_the_hub_is_not_ignored_for_a_folder(setting, key, tmp_path):
    """A revision or a split of files on this machine would be accepted and mean nothing."""
    assert key in refusals(job(model_folder(tmp_path / "model"), **{setting: "v2"}), ROWS)


@pytest.mark.torch
@pytest.mark.parametrize("given", ["file", "notebook"])
def test_rows_that_are_too_long_are_refused_in_the_cell(sample, tmp_path, given):
    """Where the job refuses them, and the data is small enough to be tokenised at once; else they are the job's."""
    pytest.importorskip("tokenizers")
    rows = [{"prompt": "Why?", "completion": " Because." * n} for n in (1, 50)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"max_seq_length": 64, **({"dataset_id": str(path)} if given == "file" else {})}
    given_rows = None if given == "file" else rows
    with pytest.raises(InvalidRequest) as caught:
        prepare(job(sample.tiny, too_long="refuse", **settings), given_rows)
    assert (
        "method.too_long = 'refuse': 1 of 2 rows are longer than max_seq_length = 64 tokens (row 2); the longest has "
        '103 tokens. Raise max_seq_length, or set too_long to "cut" or "drop".'
    ) == str(caught.value)
    prepare(job(sample.tiny, too_long="cut", **settings), given_rows)
    prepare(job(sample.tiny, too_long="refuse", **settings | {"max_seq_length": 128}), given_rows)
