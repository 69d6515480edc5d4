"""Where rows come from, and how files are read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kernel_launcher.data.rows.readers import Broken
from kernel_launcher.data.rows.source import HubId, data_size, read_rows, resolve
from kernel_launcher.errors import InvalidRequest

ROW = {"text": "naïve 🙂 \u2028 line"}


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows(path: Path) -> list[object]:
    return list(read_rows(path))


def refusal(path: Path) -> str:
    with pytest.raises(InvalidRequest) as caught:
        rows(path)
    return str(caught.value)


# Resolving


def test_a_path_wins_over_a_hub_id(tmp_path):
    """A file that is called like a data set on the hub is read from disk."""
    file = written(tmp_path / "owner.jsonl", "{}")
    assert file == resolve("owner.jsonl", tmp_path)
    assert HubId("owner/name") == resolve("owner/name", tmp_path)
    (tmp_path / "owner").mkdir()
    inner = written(tmp_path / "owner" / "name.csv", "text\na\n")
    assert inner == resolve("owner/name.csv", tmp_path)


@pytest.mark.parametrize("given", ["squad", "owner/name", "HuggingFaceH4/ultrachat_200k", "a.b/c-d_e.1"])
def test_a_hub_id_is_a_name_or_an_owner_and_a_name(given, tmp_path):
    assert HubId(given) == resolve(given, tmp_path)


NO_HUB_IDS = (
    *("./train", "../train", "/no/train", "~/train", "~nobody/train", "train.jsonl", "a/b/train.parquet", "a/b/c"),
    *("a b", "", "x" * 5000, "nul\0", '{"a": 1}', "hf://owner/name"),
)


@pytest.mark.parametrize("given", NO_HUB_IDS)
def test_what_looks_like_a_path_is_never_looked_for_on_the_hub(given, tmp_path):
    """A mistyped path is refused, and does not become a download."""
    (tmp_path / "train").mkdir()  # without a data file; the others do not exist
    with pytest.raises(InvalidRequest):
        resolve(given, tmp_path / "elsewhere")


def test_a_missing_file_is_refused_with_the_nearest_name(tmp_path):
    written(tmp_path / "Train-data.jsonl", "{}")
    with pytest.raises(InvalidRequest, match=r"no such file.*Did you mean 'Train-data.jsonl'") as caught:
        resolve("./train_data.jsonl", tmp_path)
    assert "invalid_request" == caught.value.code


def test_a_missing_file_unlike_any_other_is_refused_with_what_is_there(tmp_path):
    written(tmp_path / "a.csv", "")
    written(tmp_path / "notes.txt", "")
    with pytest.raises(InvalidRequest, match=r"That folder has a\.csv\."):
        resolve("./quite-another.jsonl", tmp_path)
    with pytest.raises(InvalidRequest, match="There is no folder"):
        resolve("./none/here.jsonl", tmp_path)


def test_a_folder_stands_for_the_one_data_file_in_it(tmp_path):
    file = written(tmp_path / "set.jsonl", "{}")
    written(tmp_path / "README.md", "")
    assert file == resolve(str(tmp_path), Path("/"))
    written(tmp_path / "other.csv", "")
    with pytest.raises(InvalidRequest, match=r"folder with 2 data files. Name one of them: other.csv, set.jsonl"):
        resolve(str(tmp_path), Path("/"))


def test_a_saved_dataset_is_told_from_a_folder_of_files(tmp_path):
    written(tmp_path / "data-00000-of-00001.arrow", "")
    written(tmp_path / "state.json", "{}")
    with pytest.raises(InvalidRequest, match=r"saved to a folder.*load_from_disk"):
        resolve(str(tmp_path), Path("/"))


def test_a_link_keeps_its_name(tmp_path):
    """The hub's cache links names to files without a suffix."""
    blob = written(tmp_path / "0a1b2c", json.dumps(ROW))
    (tmp_path / "train.jsonl").symlink_to(blob)
    assert [(1, ROW)] == rows(resolve("train.jsonl", tmp_path))


def test_a_file_of_another_kind_is_refused_with_those_that_are_read(tmp_path):
    written(tmp_path / "book.docx", "")
    with pytest.raises(InvalidRequest, match=r"not read\. Use one of \.jsonl"):
        resolve("book.docx", tmp_path)


# JSON


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "A.JSONL", "a.jsonl.gz"])
@pytest.mark.parametrize("layout", ["lines", "list", "indented list", "CRLF", "byte order mark"])
def test_json_rows_come_back_as_they_were_written(name, layout, tmp_path):
    """Unicode, line ends and a byte order mark make no difference; lines or list is told by the content."""
    texts = {
        "lines": f"{json.dumps(ROW)}\n{json.dumps(ROW, ensure_ascii=False)}",
        "list": json.dumps([ROW, ROW]),
        "indented list": "\n " + json.dumps([ROW, ROW], indent=4, ensure_ascii=False),
        "CRLF": f"{json.dumps(ROW)}\r\n{json.dumps(ROW)}\r\n",
        "byte order mark": f"\ufeff{json.dumps(ROW)}\n{json.dumps(ROW)}\n",
    }
    content = texts[layout].encode()
    path = written(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    assert [(1, ROW), (2, ROW)] == rows(path)
    assert len(content) == data_size(path)


def test_a_row_of_json_lines_is_numbered_by_its_line(tmp_path):
    """Empty lines are skipped and counted, so that an editor finds the row."""
    assert [(2, ROW), (5, ROW)] == rows(
        written(tmp_path / "a.jsonl", f"\n{json.dumps(ROW)}\n  \n\n{json.dumps(ROW)}\n")
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "cut', "it is not JSON: unterminated string starting at (character 10)."),
        ("{'text': 1}", "it is not JSON: expecting property name enclosed in double quotes (character 2)."),
        ('{"a": 1} {"a": 2}', "it is not JSON: it goes on after its end."),
        ("[1, 2]", "it is a list, not an object."),
        ("null", "it is empty, not an object."),
        ("NaN", "it is NaN, not an object."),
        ('{"a": ' + "[" * 100_000, "it is not JSON: it is nested too deep."),
        ('{"a": ' + "9" * 5000 + "}", "it is not JSON: it holds a number of too many digits."),
    ],
)
def test_a_broken_line_is_a_fault_of_that_row_alone(line, reason, tmp_path):
    good = json.dumps(ROW)
    assert [(1, ROW), (2, Broken(reason)), (3, ROW)] == rows(
        written(tmp_path / "a.jsonl", f"{good}\n{line}\n{good}\n")
    )


def test_a_line_may_be_as_long_as_it_likes(tmp_path):
    row = {"text": "word " * 1_000_000}
    assert [(1, row)] == rows(written(tmp_path / "a.jsonl", json.dumps(row)))
    assert [(1, row), (2, row)] == rows(written(tmp_path / "a.json", json.dumps([row, row])))


def test_a_json_list_is_read_row_by_row(tmp_path):
    """The first rows of a large list are there before the last ones are read, whatever the chunks cut."""
    many = [{"n": n, "text": 'é"\\\u2028' * n, "x": [True, None, -1.5e-7]} for n in range(700)]
    path = written(tmp_path / "a.json", json.dumps(many, ensure_ascii=True))
    assert path.stat().st_size > 2 * (1 << 20)
    assert many == [row for _, row in read_rows(path)]
    written(path, path.read_bytes()[:-100])  # cut off
    assert (1, many[0]) == next(read_rows(path))
    assert "row 700 is not JSON" in refusal(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{\n "prompt": ["a"]\n}', "it holds one object. Write a list of objects"),
        ("[1, 2]", "row 1 is no object."),
        ('[{"a": 1} {"a": 2}]', "',' is missing before '{'."),
        ('[{"a": 1},]', "row 2 is no object."),
        ('[{"a": 1}', "',' is missing at its end."),
        ('[{"a": 1}] []', "it goes on after the end of its list."),
        ('[{"a": tru}, {"a": 1}' + " " * 100, "row 1 is not JSON: expecting value."),
        ("[]", "it holds no rows."),
        ("", "it holds no rows."),
        (" \n \n", "it holds no rows."),
    ],
)
def test_a_json_file_that_is_no_list_of_objects_is_refused(content, reason, tmp_path):
    assert reason in refusal(written(tmp_path / "a.json", content))


# CSV


def test_csv_cells_are_text_and_empty_ones_are_none(tmp_path):
    """Quotes, commas and line ends in cells, a pandas index without a name, and lines of commas alone."""
    content = '\ufeff,prompt,completion\r\n0,"a, ""b""\nc",2\r\n\r\n,,\r\n1,d,\r\n'
    expected = [(1, {"prompt": 'a, "b"\nc', "completion": "2"}), (2, {"prompt": "d", "completion": None})]
    assert expected == rows(written(tmp_path / "a.csv", content))


def test_a_csv_cell_may_hold_a_whole_book(tmp_path):
    book = "word " * 100_000
    assert [(1, {"text": book})] == rows(written(tmp_path / "a.csv", f"text\n{book}\n"))


def test_a_csv_row_with_a_cell_too_many_is_a_fault_of_that_row_alone(tmp_path):
    expected = [(1, Broken("it has 3 cells and the header has 1.")), (2, {"text": "good"})]
    assert expected == rows(written(tmp_path / "a.csv", "text\nHello, world, again\ngood\n"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("text,text\na,b\n", "its first line names a column twice."),
        ('text\n"never closed\nand so on\n', "line 3 is not CSV"),
        ("text\n", "it holds no rows."),
        ("", "it holds no rows."),
    ],
)
def test_a_broken_csv_file_is_refused(content, reason, tmp_path):
    assert reason in refusal(written(tmp_path / "a.csv", content))


# Parquet, and files that cannot be read


def test_parquet_rows_hold_lists_and_nulls(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    many = [{"messages": [{"role": "user", "content": f"{n}"}], "text": None} for n in range(2500)]
    pq.write_table(pa.Table.from_pylist(many), tmp_path / "a.parquet")
    assert list(enumerate(many, 1)) == rows(tmp_path / "a.parquet")
    assert data_size(tmp_path / "a.parquet") > 2500


@pytest.mark.parametrize("content", [b"", b"PAR1 not really PAR1", b"text"])
def test_a_broken_parquet_file_is_refused(content, tmp_path):
    path = written(tmp_path / "a.parquet", content)
    assert "it is no Parquet file" in refusal(path)
    assert len(content) == data_size(path)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_file_in_another_encoding_is_refused(name, encoding, tmp_path):
    content = "text\nnaïve" if name.endswith("csv") else json.dumps([{"text": "naïve"}], ensure_ascii=False)
    assert "not UTF-8" in refusal(written(tmp_path / name, content.encode(encoding)))


@pytest.mark.parametrize("content", [b"", b"no gzip", gzip.compress(b'{"a": 1}\n' * 1000)[:-20]])
def test_a_broken_gzip_file_is_refused(content, tmp_path):
    assert "a.jsonl.gz" in refusal(written(tmp_path / "a.jsonl.gz", content))


def test_a_file_that_went_away_is_refused(tmp_path):
    assert "it cannot be read: No such file or directory." in refusal(tmp_path / "gone.jsonl")
