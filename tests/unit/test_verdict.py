"""The verdict: which rank failed first, why, and whose it is."""

from __future__ import annotations

import signal

import pytest

from kernel_launcher.launcher.verdict import ATTRIBUTION, attribution_of, judge, left_early
from kernel_launcher.protocol.failure import EXIT_DISK_FULL, Failure, RankRecord

PLAN = "plan: dp=4"
TERM, KILL, SEGV, ABRT = -signal.SIGTERM, -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT
GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:28713"


def record(
    rank: int, exception: str = "ValueError", text: str = "bad", at: int = 0, code: str | None = None
) -> RankRecord:
    return RankRecord(
        rank=rank,
        local_rank=rank,
        world_size=4,
        code=code,
        exception=exception,
        text=text,
        traceback=f"Traceback of {rank}",
        phase="train",
        step=3,
        time_ns=1_700_000_000_000_000_000 + at,
    )


def verdict(records: list[RankRecord], exits: dict[int, int], world_size: int = 4) -> Failure:
    return judge(records, exits, world_size=world_size, plan_line=PLAN, log_tail=lambda rank: [f"log of {rank}"])


OWN = record(2, at=50)
LATER = record(0, "TypeError", at=70)
PEER = record(0, "RuntimeError", GLOO, at=10)
NCCL = record(1, "DistBackendError", "NCCL error", at=5)

TABLE = {
    "one rank's error": ([OWN], {2: 1, 0: TERM, 1: TERM, 3: TERM}, ("training_error", 2)),
    "two errors in one second: the first by nanoseconds": ([LATER, OWN], {0: 1, 2: 1}, ("training_error", 2)),
    "a peer's error came first by the clock": ([PEER, OWN], {0: 1, 2: 1}, ("training_error", 2)),
    "NCCL's error came first by the clock": ([NCCL, OWN], {1: 1, 2: 1}, ("training_error", 2)),
    "a code of the rank's own": ([record(1, "OutOfMemoryError", "CUDA", code="oom")], {1: 1}, ("oom", 1)),
    "a coded error that sounds like a peer's": (
        [record(1, "RuntimeError", "broken pipe", code="disk_full")],
        {1: 1},
        ("disk_full", 1),
    ),
    "killed, and the others saw the connection go": ([PEER], {2: KILL, 0: 1, 1: TERM}, ("killed_externally", 2)),
    "crashed, and the others saw the connection go": ([PEER, NCCL], {3: SEGV, 0: 1, 1: 1}, ("native_crash", 3)),
    "killed without any record": ([], {1: KILL, 0: TERM}, ("killed_externally", 1)),
    "crashed without any record": ([], {1: SEGV}, ("native_crash", 1)),
    "aborted": ([], {0: ABRT}, ("native_crash", 0)),
    "another signal": ([], {0: -signal.SIGUSR1}, ("killed_externally", 0)),
    "asked to end from outside, alone": ([], {1: TERM}, ("preempted", 1)),
    "asked to end from outside, and the others saw the connection go": ([PEER], {1: TERM, 0: 1}, ("preempted", 1)),
    "an exit code and no record": ([], {2: 3, 0: TERM}, ("training_error", 2)),
    "the agent's SIGTERM is no cause": ([], {2: 3, 0: TERM, 1: KILL}, ("training_error", 2)),
    "nothing but peers' errors": ([PEER, NCCL], {0: 1, 1: 1, 2: TERM}, ("distributed_error", 1)),
    "a peer's error after a SIGTERM of the agent": ([PEER], {0: 1, 1: TERM}, ("distributed_error", 0)),
    "an error beats a silent exit": ([OWN], {1: 1, 2: 1}, ("training_error", 2)),
    "nothing at all": ([], {}, ("training_error", None)),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_root_is_the_rank_that_failed_first_by_itself(case):
    """Cause class first, clock second: an echo of another rank's end is never the root."""
    records, exits, expected = TABLE[case]
    for order in (records, records[::-1]):
        found = verdict(order, exits)
        assert expected == (found.code, found.rank)
        assert found.attribution == attribution_of(expected[0], 4)
        assert ((f"log of {found.rank}",) if found.rank is not None else ()) == found.log_tail
        assert PLAN in found.message


def test_the_message_names_the_rank_then_the_plan_then_the_traceback():
    """The words of the page: rank, host place, class and text; the plan line; the traceback."""
    found = verdict([record(2, "OutOfMemoryError", "CUDA out of memory. Tried", code="oom")], {2: 1})
    assert [
        "rank 2/4 (node 0, local_rank 2) failed: OutOfMemoryError: CUDA out of memory. Tried",
        PLAN,
        "Traceback of 2",
    ] == found.message.splitlines()
    assert "rank 2/4 (node 0, local_rank 2) failed: OutOfMemoryError: CUDA out of memory. Tried" == found.headline


@pytest.mark.parametrize(
    ("exits", "said"),
    [
        ({1: SEGV}, "rank 1/4 (node 0, local_rank 1) crashed with SIGSEGV"),
        (
            {1: KILL},
            (
                "rank 1/4 (node 0, local_rank 1) was killed (SIGKILL) from outside; "
                "the system does so when memory runs out"
            ),
        ),
        ({1: TERM}, "rank 1/4 (node 0, local_rank 1) was asked to end by a SIGTERM from outside"),
        ({1: -64}, "rank 1/4 (node 0, local_rank 1) was ended by signal 64"),
        ({1: 3}, "rank 1/4 (node 0, local_rank 1) ended with exit code 3 and left no record"),
    ],
)
def test_a_rank_without_a_record_is_described_by_its_end(exits, said):
    """Without a word of the rank itself, its exit is what is known."""
    assert said == verdict([], exits).headline


@pytest.mark.parametrize(
    ("exception", "text", "echo"),
    [
        ("RuntimeError", GLOO, True),
        ("RuntimeError", "Connection reset by peer", True),
        ("RuntimeError", "[Rank 0] Watchdog caught collective operation timeout: NCCL", True),
        ("RuntimeError", "[c10d] recvValue failed", True),
        ("RuntimeError", "Timed out in TCPStore::get", True),
        ("DistNetworkError", "The client socket has timed out", True),
        ("DistStoreError", "wait timeout", True),
        ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied", False),
        ("RuntimeError", "failed to restore the optimizer from storage", False),
        ("RuntimeError", "could not store the row", False),
        ("ConnectionResetError", "Connection reset by peer", False),
        ("ValueError", "connection closed", False),
    ],
)
def test_what_is_an_echo_of_another_rank(exception, text, echo):
    """Errors of a collective are echoes; an error of one's own that merely sounds like one is not."""
    found = verdict([record(0, exception, text, at=1), record(3, "KeyError", "'x'", at=9)], {0: 1, 3: 1})
    assert (3 if echo else 0) == found.rank


@pytest.mark.parametrize(
    ("code", "world_size", "whose"),
    [
        ("oom", 4, "customer"),
        ("training_error", 1, "customer"),
        ("training_error", 4, "pending"),
        ("distributed_error", 4, "pending"),
        ("killed_externally", 4, "pending"),
        ("native_crash", 1, "pending"),
        ("preempted", 4, "platform"),
        ("launcher_lost", 4, "platform"),
        ("artifact_invalid", 4, "platform"),
        ("dataset_format_incompatible", 4, "customer"),
    ],
)
def test_whose_a_failure_is(code, world_size, whose):
    """The table of the page; an exception in training is the customer's on one GPU, and open on several."""
    assert whose == attribution_of(code, world_size)
    assert set(ATTRIBUTION.values()) == {"customer", "platform", "pending"}


def test_an_error_on_one_rank_alone_is_its_owners():
    """A record that says one rank is judged as one rank."""
    lone = RankRecord(**{**{f: getattr(OWN, f) for f in OWN.__slots__}, "world_size": 1, "rank": 0})
    assert "customer" == verdict([lone], {0: 1}, world_size=1).attribution


@pytest.mark.parametrize(
    ("exits", "code", "attribution"),
    [
        ({1: EXIT_DISK_FULL, 0: -15}, "disk_full", "customer"),
        ({0: 3}, "training_error", "customer"),
    ],
)
def test_a_rank_that_left_no_record_is_known_by_its_exit(exits, code, attribution):
    """A disk so full that not even the record fits is still told from an exit that says nothing."""
    found = judge([], exits, world_size=len(exits), plan_line="plan", log_tail=lambda _: [])
    assert (code, attribution) == (found.code, found.attribution)


def test_a_rank_that_leaves_early_is_no_success():
    """Exit code 0 without a model is a failure of its own, and the user's to mend."""
    found = left_early(1, world_size=2, plan_line="plan", log_tail=lambda rank: [f"log {rank}"])
    assert ("early_exit", "customer", 1, ("log 1",)) == (found.code, found.attribution, found.rank, found.log_tail)
