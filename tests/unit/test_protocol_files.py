"""Small files, logs, the index, requests: whole or absent, and without secrets."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_launcher.errors import VeriError
from kernel_launcher.launcher.leftovers import clean
from kernel_launcher.protocol import control, index
from kernel_launcher.protocol.failure import Failure, RankRecord
from kernel_launcher.protocol.files import lines_of, now, read_json, readable, seconds_between, tail, write_json
from kernel_launcher.protocol.logs import job_log, rank_log
from kernel_launcher.protocol.paths import RunDir

TOKEN = "hf_" + "aB3" * 11


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


# JSON files


@pytest.mark.parametrize("value", [{"a": [1, None, "ä🙂"]}, [], "text", 5, None, {"path": "/tmp/\udcff"}])
@pytest.mark.parametrize("durable", [False, True])
def test_a_value_is_read_back(value, durable, tmp_path):
    """What is written is what is read, also a path that is not UTF-8."""
    write_json(tmp_path / "x.json", value, durable=durable)
    assert value == read_json(tmp_path / "x.json")
    assert ["x.json"] == names(tmp_path)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    """A value that cannot be written, or a disk that is full, costs nothing that was there."""
    path = tmp_path / "x.json"
    write_json(path, {"old": 1})
    with pytest.raises(TypeError):
        write_json(path, {"new": object()})
    assert {"old": 1} == read_json(path)
    assert ["x.json"] == names(tmp_path)
    (tmp_path / "folder" / "x").mkdir(parents=True)
    with pytest.raises(OSError, match="Is a directory"):
        write_json(tmp_path / "folder", {"new": 1})
    assert {"folder", "x.json"} == set(names(tmp_path))


def test_a_reader_never_sees_half_a_file(tmp_path):
    """While a file is rewritten again and again, every look finds one whole version."""
    path = tmp_path / "x.json"
    write_json(path, {"n": 0, "fill": "x" * 50_000})
    looks: list[object] = []
    done = threading.Event()

    def look():
        while not done.is_set():
            looks.append(read_json(path))

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(100):
        write_json(path, {"n": number, "fill": "x" * 50_000})
    done.set()
    reader.join()
    looks.append(read_json(path))
    assert None not in looks


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"nope"])
def test_what_is_no_json_is_none(content, tmp_path):
    """A broken or missing file is no value, and no error."""
    (tmp_path / "x.json").write_bytes(content)
    assert read_json(tmp_path / "x.json") is None
    assert read_json(tmp_path / "missing.json") is None
    assert read_json(tmp_path) is None


def test_times_are_utc_and_sort_as_text():
    """A time says that it is UTC, and later is greater."""
    first, second = now(), now()
    assert first <= second
    assert first.endswith("Z")
    assert 1.5 == seconds_between("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.500Z")


# Logs


@pytest.mark.parametrize(("count", "wanted"), [(0, 5), (3, 5), (5, 5), (10, 3), (10, 0), (10, -1), (200_000, 200)])
def test_the_last_lines_of_a_file(count, wanted, tmp_path):
    """As many lines as asked for, or all there are; of a large file only its end is read."""
    lines = [f"line {number} ä" for number in range(count)]
    (tmp_path / "log").write_text("".join(f"{line}\n" for line in lines))
    assert (lines[-wanted:] if wanted > 0 else []) == tail(tmp_path / "log", wanted)
    assert [] == tail(tmp_path / "missing", 5)


def test_a_tail_of_long_lines_is_whole(tmp_path):
    """Lines that are longer than what is read at once come whole."""
    lines = ["a" * 100_000, "ä" * 200_000, "c"]
    (tmp_path / "log").write_text("\n".join(lines))
    assert lines == tail(tmp_path / "log", 5)
    assert lines[1:] == tail(tmp_path / "log", 2)


def test_of_a_progress_bar_the_last_state_is_shown(tmp_path):
    """A bar that was drawn a thousand times is one line, as on a terminal, and does not push the error out."""
    bar = "".join(f"\r{percent}%" for percent in range(1001))
    (tmp_path / "log").write_bytes(f"start\r\n{bar}\nTraceback\n".encode())
    assert ["start", "1000%", "Traceback"] == tail(tmp_path / "log", 3)


@given(st.binary(max_size=60))
def test_any_bytes_are_lines(block):
    """A log may hold anything; there are as many lines as line feeds (and one more without a last one)."""
    lines = lines_of(block)
    assert block.count(b"\n") + (not block.endswith(b"\n") and block != b"") == len(lines)
    assert all("\n" not in line and "\r" not in line for line in lines)


def test_a_log_is_shown_without_secrets_and_in_order(tmp_path, monkeypatch):
    """Launcher, then ranks by number, each under its heading; output before errors; tokens as stars."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    run = RunDir(tmp_path / "run")
    run.create()
    for rank in (10, 2, 0):
        run.rank(rank).root.mkdir(parents=True)
        run.rank(rank).stdout.write_text(f"out {rank}\n")
    run.rank(2).stderr.write_text(f"error with {TOKEN}\n")
    run.rank(0).stdout.unlink()
    (run.root / "attempt_0" / "rank_x").mkdir()
    run.launcher_log.write_text(f"started, {TOKEN}\n")
    assert [
        "== launcher ==", "started, ***",
        "== rank 2 ==", "out 2", "error with ***",
        "== rank 10 ==", "out 10",
    ] == job_log(run, 20)  # fmt: skip
    assert ["error with ***"] == rank_log(run.rank(2), 1)
    assert [] == rank_log(run.rank(7), 5)


# Run folders


def test_a_run_folder_is_its_owners(tmp_path):
    """Nobody else can read a run, whatever the umask."""
    before = os.umask(0)
    try:
        RunDir(tmp_path / "a" / "b").create()
    finally:
        os.umask(before)
    assert 0o700 == stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode)


def test_only_an_empty_folder_becomes_a_run_folder(tmp_path):
    """An empty folder is taken; one with something in it is left as it is."""
    (tmp_path / "empty").mkdir()
    RunDir(tmp_path / "empty").create()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    with pytest.raises(FileExistsError, match="is not empty"):
        RunDir(tmp_path / "full").create()
    assert ["thesis.txt"] == names(tmp_path / "full")
    with pytest.raises(OSError, match=r"Not a directory|exists"):
        RunDir(tmp_path / "full" / "thesis.txt").create()


# The index


def entry(root: Path, name: str = "job", created_at: str = "2026-01-01T00:00:00.000Z") -> index.Entry:
    (root / name).mkdir(parents=True)
    write_json(RunDir(root / name).spec, {"job": {"id": name}})
    return index.Entry(id=name, name=name, root=str(root / name), created_at=created_at, fingerprint="f")


def test_jobs_are_listed_newest_first(tmp_path):
    """What was started last stands first; what was removed, or whose folder has gone, is not listed."""
    assert [] == index.entries()
    made = [entry(tmp_path, f"job-{n}", f"2026-01-0{n}T00:00:00.000Z") for n in (1, 3, 2)]
    for one in made:
        index.add(one)
    assert ["job-3", "job-2", "job-1"] == [found.id for found in index.entries()]
    index.remove("job-3")
    index.remove("no such job")
    Path(made[0].run.spec).unlink()
    assert ["job-2"] == [found.id for found in index.entries()]
    write_json(made[2].run.spec, {"job": {"id": "another job, in the folder of one that was deleted"}})
    assert [] == index.entries()


def test_broken_entries_are_passed_over(tmp_path):
    """One bad file in the index does not hide the other jobs."""
    index.add(entry(tmp_path, "good"))
    folder = index.home() / "jobs"
    good = json.loads((folder / "good.json").read_text())
    broken = [
        b"",
        b"{",
        b"[]",
        b"{}",
        json.dumps(good | {"root": 5}).encode(),
        json.dumps(good | {"x": "y"}).encode(),
    ]
    for number, content in enumerate(broken):
        (folder / f"broken-{number}.json").write_bytes(content)
    (folder / "folder.json").mkdir()
    assert ["good"] == [found.id for found in index.entries()]


def test_jobs_that_are_entered_at_once_are_all_there(tmp_path):
    """Twenty notebooks at a time: no entry is lost, and only one at a time is in the part that chooses a name."""
    inside, most = [], []

    def start(number):
        with index.exclusive():
            inside.append(number)
            most.append(len(inside))
            index.add(entry(tmp_path, f"job-{number}"))
            inside.remove(number)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 20 == len(index.entries())
    assert {1} == set(most)


def test_a_home_that_cannot_be_written_says_so(tmp_path, monkeypatch):
    """Listing works without a state directory; starting says which folder it needs and how to move it."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VERI_HOME", str(tmp_path / "file" / "home"))
    assert [] == index.entries()
    with pytest.raises(VeriError, match=r"cannot be kept in .*file/home") as caught, index.exclusive():
        pass
    assert "VERI_HOME" in caught.value.hint


# Requests and records


def test_requests_wait_in_order_until_they_are_taken(tmp_path):
    """Oldest first, each with its fields; what is no request is passed over."""
    run = RunDir(tmp_path / "run")
    run.create()
    assert [] == control.pending(run)
    control.send(run, "stop", now=True)
    control.send(run, "pause")
    (run.control / "a.json").write_text("[]")
    (run.control / ".half.json").write_text('{"request": "stop"}')
    found = control.pending(run)
    assert [("stop", {"now": True}), ("pause", {})] == [(request.name, request.fields) for request in found]
    found[0].path.unlink()
    assert ["pause"] == [request.name for request in control.pending(run)]


RECORD = RankRecord(
    rank=1, local_rank=1, world_size=2, code=None, exception="ValueError", text="x\udcff", traceback="t",
    phase="train", step=3, time_ns=1_700_000_000_123_456_789,
)  # fmt: skip


def test_a_ranks_record_is_read_back_to_the_nanosecond(tmp_path):
    """Which rank failed first is decided by this clock."""
    RECORD.write(tmp_path / "failure.json")
    assert RECORD == RankRecord.read(tmp_path / "failure.json")
    assert RankRecord.read(tmp_path / "missing.json") is None
    for broken in ("{", "[]", "{}", '{"rank": 1}'):
        (tmp_path / "failure.json").write_text(broken)
        assert RankRecord.read(tmp_path / "failure.json") is None


def test_a_failure_is_read_back():
    """Through JSON; unknown fields are ignored, and what is no failure is none."""
    failure = Failure(code="oom", message="rank 1 failed\nplan", attribution="customer", log_tail=("a",), rank=1)
    assert failure == Failure.from_json(json.loads(json.dumps(failure.to_json() | {"new": 1})))
    assert "rank 1 failed" == failure.headline
    for value in (None, [], {}, {"code": "x"}, "x"):
        assert Failure.from_json(value) is None


def test_somebodys_text_is_shown_without_its_colours_and_not_at_any_length():
    """Colours, titles, bells and carriage returns go; tabs and letters of every language stay; the rest is cut."""
    assert "red\tπ" == readable("\x1b[31mred\x1b[0m\x1b]0;title\x07\t\x07π\r\x00")
    assert "x" * 9 + "…" == readable("x" * 200, 10)


def test_the_headline_of_a_failure_fits_a_line():
    """An exception's text of any length and kind makes a short first line."""
    failure = Failure(code="c", message="\x1b[31m" + "y" * 100_000 + "\nplan", attribution="pending")
    assert 600 == len(failure.headline)
    assert "\x1b" not in failure.headline


@pytest.mark.parametrize("keep", [True, False])
def test_what_a_killed_process_left_half_written_is_removed(tmp_path, keep):
    """Half a data file and half a model go; a model that could not be verified may stay; whole files always do."""
    run = RunDir(tmp_path / "run")
    run.create()
    (run.data / ".train.arrow.123").touch()
    (run.data / "train.arrow").touch()
    run.final_scratch.mkdir()
    clean(run, keep_model=keep)
    assert ["train.arrow"] == [path.name for path in run.data.iterdir()]
    assert keep == run.final_scratch.exists()
