"""Rows from the notebook, written down."""

from __future__ import annotations

import datetime as dt
import os

import pytest

from kernel_launcher.data.rows.snapshot import file_digest, source_digest, take_snapshot
from kernel_launcher.data.rows.source import read_rows
from kernel_launcher.errors import InvalidRequest

ROWS = [
    {"prompt": f"naïve 🙂 {n}", "messages": [{"role": "user", "content": "a"}], "score": n / 2, "n": n, "none": None}
    for n in range(2500)
]


def refusal(data):
    with pytest.raises(InvalidRequest) as caught:
        take_snapshot(data)
    return str(caught.value)


def only_row(data):
    return next(take_snapshot(data).rows())[1]


def test_a_snapshot_is_a_file_of_json_lines_and_its_hash(tmp_path):
    snapshot = take_snapshot(ROWS)
    snapshot.write_to(tmp_path / "rows.jsonl")
    assert list(enumerate(ROWS, 1)) == list(read_rows(tmp_path / "rows.jsonl")) == list(snapshot.rows())
    assert file_digest(tmp_path / "rows.jsonl") == snapshot.sha256
    assert (2500, (tmp_path / "rows.jsonl").stat().st_size) == (snapshot.count, snapshot.size)
    assert ["rows.jsonl"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.torch
def test_equal_rows_have_one_hash_whatever_holds_them():
    pd, pa, datasets = (pytest.importorskip(name) for name in ("pandas", "pyarrow", "datasets"))
    holders = [
        [dict(reversed(row.items())) for row in ROWS],
        tuple(ROWS),
        pd.DataFrame(ROWS),
        pa.Table.from_pylist(ROWS),
        datasets.Dataset.from_list(ROWS),
        datasets.Dataset.from_list(ROWS[::-1]).select(range(2499, -1, -1)).with_format("numpy"),
    ]
    expected = take_snapshot(ROWS).sha256
    assert [expected] * len(holders) == [take_snapshot(data).sha256 for data in holders]
    assert expected != take_snapshot(ROWS[:-1]).sha256


def test_a_large_snapshot_leaves_memory_and_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_launcher.data.rows.snapshot._IN_MEMORY", 10)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    snapshot = take_snapshot(ROWS)
    assert 2500 == len(list(snapshot.rows()))
    assert [] == list(tmp_path.iterdir())


def test_a_snapshot_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "rows.jsonl").mkdir()
    with pytest.raises(OSError, match="directory"):
        take_snapshot(ROWS).write_to(tmp_path / "rows.jsonl")
    assert ["rows.jsonl"] == [path.name for path in tmp_path.iterdir()]


def test_values_of_a_frame_become_plain_ones():
    """NumPy scalars and arrays, dates and times, and every way in which pandas says that nothing is there."""
    np, pd = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "text": ["a", None],
            "float": [0.5, np.nan],
            "int": pd.array([1, pd.NA], dtype="Int64"),
            "time": [pd.Timestamp("2020-01-02T03:04:05"), pd.NaT],
            "category": pd.Categorical(["x", None]),
            "object": [np.array([{"role": "user", "content": np.str_("a")}]), np.float32("nan")],
            "stamp": [np.datetime64("2020-01-02T03:04:05.000000001"), np.bool_(True)],
        }
    )
    first, second = (row for _, row in take_snapshot(frame).rows())
    assert {
        "text": "a",
        "float": 0.5,
        "int": 1,
        "time": "2020-01-02T03:04:05",
        "category": "x",
        "object": [{"role": "user", "content": "a"}],
        "stamp": "2020-01-02T03:04:05.000000001",
    } == first
    assert dict.fromkeys(frame.columns) | {"stamp": True} == second


def test_values_of_dicts_become_plain_ones():
    row = {"at": dt.date(2020, 1, 2), "time": dt.time(3, 4), "pair": ("a", 1), "nan": float("nan")}
    assert {"at": "2020-01-02", "time": "03:04:00", "pair": ["a", 1], "nan": None} == only_row([row])


LOOP: list[object] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({1, 2}, "JSON cannot hold a set."),
        (b"a", "JSON cannot hold a bytes."),
        ([{"deep": 1j}], "JSON cannot hold a complex."),
        (float("inf"), "JSON cannot hold an infinite number."),
        ("half \ud83d", "it holds half of a surrogate pair."),
        ({("a", "b"): 1}, "it has a key that is not text."),
        (LOOP, "it is nested too deep."),
    ],
)
def test_a_value_that_json_cannot_hold_is_refused_with_its_place(value, reason):
    assert f"dataset: row 2, column 'bad': {reason}" in refusal([{"good": 1}, {"good": 1, "bad": value}])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([], "it holds no rows."),
        ([1], "row 1 is a number, not a dict."),
        ([{1: "a"}], "row 1 has a column whose name is not text."),
        ({"text": ["a"]}, "it is an object. Give a list of dicts"),
        ("rows.jsonl", "it is text. Give a list of dicts"),
        (iter(ROWS), "it is of type list_iterator. Give a list of dicts"),
        (None, "it is empty. Give a list of dicts"),
    ],
)
def test_what_holds_no_rows_is_refused(data, reason):
    assert reason in refusal(data)


@pytest.mark.torch
def test_frames_and_data_sets_that_are_not_rows_are_refused():
    pd, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list(ROWS[:2])
    assert "two of its columns have the same name" in refusal(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    assert "a column whose name is not text" in refusal(pd.DataFrame([[1, 2]]))
    assert "it holds no rows" in refusal(pd.DataFrame())
    assert "a data set for each split. Give one: train, test." in refusal(datasets.DatasetDict(train=rows, test=rows))
    assert "a stream" in refusal(rows.to_iterable_dataset())


def test_the_digest_is_that_of_the_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" == file_digest(tmp_path / "a")


def test_another_state_of_a_file_has_another_digest(tmp_path, monkeypatch):
    """A small file is its bytes, wherever it lies and however old it is; a huge one is told by its size and age."""
    path, moved = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"abc")
    small = source_digest(path)
    os.utime(path, ns=(1, 1))
    assert small == source_digest(path)
    assert small == source_digest(path.rename(moved))
    moved.write_bytes(b"abd")
    assert small != source_digest(moved)

    monkeypatch.setattr("kernel_launcher.data.rows.snapshot._HASHED_WHOLE_BYTES", 2)
    huge = source_digest(moved)
    assert huge == source_digest(moved)
    os.utime(moved, ns=(1, 1))
    older = source_digest(moved)
    with moved.open("ab") as file:
        file.write(b"e")
    os.utime(moved, ns=(1, 1))
    assert 3 == len({huge, older, source_digest(moved)})
