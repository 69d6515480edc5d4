"""Event files: what is written is read back whole, once, and in order, whatever the disk and the clock do."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kernel_launcher.protocol.events import EventReader, EventWriter, finite
from kernel_launcher.protocol.paths import RunDir


@pytest.fixture
def run(tmp_path):
    folder = RunDir(tmp_path / "run")
    folder.create()
    for rank in (0, 1):
        folder.rank(rank).root.mkdir(parents=True)
    return folder


def rank_writer(run, rank=0):
    return EventWriter(run.rank(rank).events, "rank", rank=rank)


def kinds(events):
    return [event["kind"] for event in events]


def test_an_event_says_who_when_and_what(run):
    """Version, sequence, wall and monotonic clock, source, rank and attempt are in every record."""
    writer = EventWriter(run.rank(1).events, "rank", rank=1, attempt=2)
    writer.write("phase", phase="load")
    writer.write("phase", phase="train")
    first, second = EventReader(run).read()
    assert {"v": 1, "seq": 0, "src": "rank", "rank": 1, "attempt": 2, "kind": "phase", "phase": "load"} == {
        key: value for key, value in first.items() if key not in ("t", "mono")
    }
    assert first["t"].endswith("Z")
    assert 1 == second["seq"]
    assert second["mono"] >= first["mono"]
    launcher = EventWriter(run.launcher_events, "launcher")
    launcher.write("status", status="queued")
    assert ["launcher"] == [event["src"] for event in EventReader(run).read() if "rank" not in event]


def test_a_line_is_one_line(run):
    """Newlines, separators of other alphabets and half of a surrogate pair (an odd file name) stay inside."""
    text = "a\nb\r\n\u2028\u0085 \udcff 🙂"
    rank_writer(run).write("warning", message=text)
    assert 1 == run.rank(0).events.read_bytes().count(b"\n")
    assert [text] == [event["message"] for event in EventReader(run).read()]


def test_a_number_that_is_not_finite_is_null_and_named(run):
    """JSON has no NaN; a diverged run must not look like a missing value, at any depth."""
    rank_writer(run).write(
        "step",
        step=3,
        metrics={"loss": float("nan"), "grad_norm": float("inf"), "learning_rate": 1e-4},
        xs=[1.0, -float("inf")],
    )
    line = run.rank(0).events.read_text()
    event = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert {"loss": None, "grad_norm": None, "learning_rate": 1e-4} == event["metrics"]
    assert [1.0, None] == event["xs"]
    assert ["loss", "grad_norm", "xs"] == event["bad"]


def test_what_is_finite_stays_as_it_is():
    """No ``bad`` where nothing is bad."""
    assert {"a": 1, "b": {"c": 0.5}, "d": None} == finite({"a": 1, "b": {"c": 0.5}, "d": None})


def test_what_json_does_not_know_is_text(run):
    """A value of some other type costs its type, not the event and not the thread that reports."""
    rank_writer(run).write("artifact", path=Path("/x"))
    assert ["/x"] == [event["path"] for event in EventReader(run).read()]


def test_only_what_is_new_is_read(run):
    """Each read goes on where the last one stopped; also in files that appear later."""
    reader, writer = EventReader(run), rank_writer(run)
    assert [] == reader.read()
    writer.write("one")
    assert ["one"] == kinds(reader.read())
    assert [] == reader.read()
    writer.write("two")
    rank_writer(run, 1).write("three")
    assert ["three", "two"] == sorted(kinds(reader.read()))
    assert ["one", "two"] == [kind for kind in kinds(EventReader(run).read()) if kind != "three"]


def test_a_line_is_read_once_it_is_whole(run):
    """A line that is still being written is left for the next look, however it is cut."""
    reader, path = EventReader(run), run.rank(0).events
    line = '{"kind": "näive", "t": "2026"}\n'.encode()
    for cut in range(1, len(line)):
        path.write_bytes(line[:cut])
        reader = EventReader(run)
        assert [] == reader.read()
        with path.open("ab") as file:
            file.write(line[cut:])
        assert ["näive"] == kinds(reader.read())
    assert 0 == reader.broken


def test_a_line_that_becomes_whole_while_others_are_read_is_one_line(run):
    """Its second half is no line of its own."""
    reader, path = EventReader(run), run.rank(0).events
    path.write_bytes(b'{"kind": "a"}\n{"kind":')
    events = reader.stream()
    assert "a" == next(events)["kind"]
    with path.open("ab") as file:
        file.write(b' "b"}\n')
    assert ["b"] == kinds(events) + kinds(reader.read())
    assert 0 == reader.broken


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"5", b"null", b'"x"', b"{}", b'{"kind": 5}', b'{"kind": ["x"]}', b"\xff\xfe"]
)
def test_a_broken_line_is_counted_and_skipped(line, run):
    """Whatever a line is, those around it are read."""
    run.rank(0).events.write_bytes(b'{"kind": "a"}\n' + line + b'\n\n{"kind": "b"}\n')
    reader = EventReader(run)
    assert ["a", "b"] == kinds(reader.read())
    assert 1 == reader.broken


def test_events_of_one_writer_keep_their_order_when_the_clock_steps_back(run):
    """A clock that is set back mixes nothing up: by time between writers, by place within one."""
    times = ["12:00:01", "12:00:03", "11:00:00", "11:00:01"]
    run.rank(0).events.write_text("".join(json.dumps({"kind": f"a{i}", "t": t}) + "\n" for i, t in enumerate(times)))
    run.rank(1).events.write_text(json.dumps({"kind": "b", "t": "12:00:02"}) + "\n")
    read = kinds(EventReader(run).read())
    assert ["a0", "a1", "a2", "a3"] == [kind for kind in read if kind != "b"]
    assert read.index("a0") < read.index("b") < read.index("a1")


def test_two_writers_at_once_lose_nothing(run):
    """Threads of two ranks write while somebody reads: every event arrives once, each writer's in order."""
    reader, seen = EventReader(run), []

    def write(rank):
        writer = rank_writer(run, rank)
        for number in range(300):
            writer.write("step", step=number)

    threads = [threading.Thread(target=write, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen += reader.read()
    seen += reader.read()
    for rank in (0, 1):
        assert list(range(300)) == [event["step"] for event in seen if event["rank"] == rank]
    assert 0 == reader.broken


def test_a_full_disk_is_counted_and_never_raised():
    """Training goes on when nothing can be written; how much was lost is known."""
    writer = EventWriter(Path("/dev/full"), "rank", rank=0)
    for _ in range(3):
        writer.write("step", step=1)
    assert 3 == writer.dropped


_FILLING_UP = """
import resource, sys
from pathlib import Path
from kernel_launcher.protocol import events
events.now = lambda: "2026"
events.time.monotonic = lambda: 0
folder, hard = Path(sys.argv[1]), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for room, more in [(room, 90) for room in range(200)] + [(10, more) for more in range(1, 90)]:
    writer = events.EventWriter(folder / f"{room:03}-{more:03}.jsonl", "rank", rank=0)
    for limit, count in ((room, 2), (room + more, 1), (hard, 2)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        for _ in range(count):
            writer.write("event")
    writer.close()
    print(f"{room:03}-{more:03}.jsonl", writer.dropped)
"""


def test_a_disk_that_is_full_at_any_byte_spoils_no_later_event(tmp_path):
    """A file system that fills up, frees a little, fills up again at this or that byte: later events are read."""
    command = [sys.executable, "-P", "-c", _FILLING_UP, str(tmp_path)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    survivors = set()
    for name, lost in zip(told[::2], told[1::2], strict=True):
        path = tmp_path / name
        lines = [line for line in path.read_bytes().split(b"\n") if line]
        good = [json.loads(line) for line in lines if _is_json(line)]
        seqs = [event["seq"] for event in good]
        assert seqs == sorted(seqs)
        assert [3, 4] == seqs[-2:], path
        assert len(lines) - len(good) <= 2
        assert 5 <= len(good) + int(lost) <= 7  # of a line that lacks its last byte alone, everything is read
        survivors.add(len(good))
    assert {2, 3, 4} <= survivors


def _is_json(line):
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
