"""The look at the rows in the cell: which are looked at, what is counted, and how it is told."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kernel_launcher.data import check
from kernel_launcher.data.check import check_file, check_rows
from kernel_launcher.data.rows.columns import Columns
from kernel_launcher.errors import InvalidRequest

CHAT = {"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]}
TEXT = {"text": "Once."}


def lines(path, rows):
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def test_a_mixed_file_is_fine_when_every_row_fits():
    """The format is judged row by row: Alpaca rows without input do not vanish, and a chat is a chat in any row."""
    rows = [TEXT, CHAT, CHAT, {"instruction": "a", "output": "b"}, {"prompt": "a", "completion": "b"}]
    report = check_rows(enumerate(rows, 1), Columns(), "sft_text")
    report.raise_if_faulty()
    assert {"messages": 2, "text": 1, "alpaca": 1, "prompt_completion": 1} == report.formats
    assert (5, True) == (report.rows_seen, report.complete)


def test_a_late_misfit_is_found(tmp_path):
    """The first row says nothing about the others."""
    path = lines(tmp_path / "a.jsonl", [CHAT] * 1500 + [{"question": "a", "answer": "b"}])
    with pytest.raises(InvalidRequest) as caught:
        check_file(path, Columns(), "sft_text").raise_if_faulty()
    assert (
        f"dataset.id = '{path}': 1 of 1,501 rows cannot be used. sft_text needs messages, or prompt and completion, "
        "or instruction and output, or text. Columns with other names are named under [dataset].\n"
        "  row 1501: it fits no format. Columns: question, answer."
    ) == str(caught.value)
    assert "dataset_format_incompatible" == caught.value.code


def test_twenty_faults_are_shown_and_all_are_counted():
    rows = [{"messages": [{"role": f"bot{n}", "content": "a"}]} for n in range(1, 1235)]
    report = check_rows(enumerate(rows, 1), Columns(), "sft_text")
    assert (1234, 20, 1234) == (report.fault_count, len(report.faults), report.rows_seen)
    with pytest.raises(InvalidRequest) as caught:
        report.raise_if_faulty()
    message = str(caught.value)
    assert "1,234 of 1,234 rows" in message
    assert "row 20: turn 1 has the role 'bot20'" in message
    assert "bot21" not in message
    assert "and 1,214 more." in message
    assert 1234 == caught.value.details["fault_count"]
    assert {
        "row": 1,
        "reason": "turn 1 has the role 'bot1'; known roles are system, user, human, prompter, assistant, gpt, tool.",
        "found": ("messages",),
        "needed": "sft_text needs messages, or prompt and completion, or instruction and output, or text.",
    } == caught.value.details["rows"][0]


def test_rows_with_the_same_fault_share_a_line():
    """A column that is called something else is one thing to mend, not twenty."""
    rows = [{"question": "a", "answer": "b"}] * 30
    with pytest.raises(InvalidRequest) as caught:
        check_rows(enumerate(rows, 1), Columns(), "sft_text").raise_if_faulty()
    assert [
        f"  rows {', '.join(map(str, range(1, 21)))}: it fits no format. Columns: question, answer.",
        "  and 10 more.",
    ] == str(caught.value).splitlines()[1:]
    rows = [{"question": "a"}, TEXT, {"question": "a"}]
    with pytest.raises(InvalidRequest) as caught:
        check_rows(enumerate(rows, 1), Columns(), "sft_text").raise_if_faulty()
    assert str(caught.value).endswith("\n  rows 1, 3: it fits no format. Columns: question.")


def test_a_broken_line_says_nothing_about_columns(tmp_path):
    path = lines(tmp_path / "a.jsonl", [CHAT, '{"text": ', CHAT])
    with pytest.raises(InvalidRequest) as caught:
        check_file(path, Columns(), "sft_text").raise_if_faulty()
    assert str(caught.value).endswith("them.\n  row 2: it is not JSON: expecting value (character 9).")


def test_a_large_file_is_looked_at_from_its_start_only(tmp_path, monkeypatch):
    """Beyond 20 MB the cell reads a thousand rows and says that these were not all."""
    path = lines(tmp_path / "a.jsonl", [CHAT] * 1000 + [{"bad": 1}])
    assert 1 == check_file(path, Columns(), "sft_text").fault_count
    monkeypatch.setattr(check, "WHOLE_FILE_BYTES", path.stat().st_size - 1)
    report = check_file(path, Columns(), "sft_text")
    report.raise_if_faulty()
    assert (1000, False) == (report.rows_seen, report.complete)
    assert check_rows(enumerate([TEXT] * 3, 1), Columns(), "sft_text", limit=3).complete


def test_wide_rows_and_long_names_stay_readable():
    row = {"c" * 100: 1} | {f"column{n}": 1 for n in range(50)}
    fault = check_rows([(1, row)], Columns(), "sft_text").faults[0]
    assert 13 == len(fault.found)
    assert f"{'c' * 39}…" == fault.found[0]
    assert "and 39 more" == fault.found[-1]


@pytest.mark.parametrize("header", ["Why is the sky blue?,Because.", "prompt;completion"])
def test_a_csv_file_without_a_header_is_refused_as_such(header, tmp_path):
    path = lines(tmp_path / "a.csv", [header, "Why?,So." if "," in header else "Why?;So."])
    with pytest.raises(InvalidRequest, match="its first line names no known column") as caught:
        check_file(path, Columns(), "sft_text")
    assert "The first line of a CSV file names the columns, with commas between them." in str(caught.value)


def test_csv_columns_of_any_name_are_read(tmp_path):
    path = lines(tmp_path / "a.csv", ["q,a,note", "Why?,So.,"])
    report = check_file(path, Columns(prompt="q", completion="a"), "sft_text")
    assert {"prompt_completion": 1} == report.formats


def test_no_rows_are_refused():
    with pytest.raises(InvalidRequest, match="it holds no rows") as caught:
        check_rows([], Columns(), "sft_text").raise_if_faulty()
    assert "dataset_format_incompatible" == caught.value.code


def test_a_kernel_that_checks_its_data_stays_light():
    """No part of the data package imports what takes seconds or memory."""
    modules = "check chat.mark rows.columns rows.formats rows.snapshot rows.source training.encode training.prepare"
    heavy = "torch transformers datasets pandas pyarrow numpy tokenizers jinja2"
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}.split(): importlib.import_module(f'kernel_launcher.data.{{name}}')\n"
        f"print([name for name in {heavy!r}.split() if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[]" == found.stdout.strip()


def test_rows_that_need_a_chat_template_are_counted():
    """Of each format by what its rows hold, not by its name: prompt and completion may be a chat, too."""
    question, answer = [{"role": "user", "content": "a"}], [{"role": "assistant", "content": "b"}]
    rows = [
        {"text": "a"},
        {"prompt": "a", "completion": "b"},
        {"prompt": question, "completion": answer},
        {"prompt": "a", "completion": "b", "system": "c"},
        {"messages": question + answer},
        {"instruction": "a", "output": "b"},
    ]
    report = check_rows(enumerate(rows, 1), Columns(), "sft_text")
    assert (6, 4) == (report.rows_seen, report.chats)
