"""The fold: from events to the state of a job."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernel_launcher.protocol.fold import DATA_FIELDS, JobView
from kernel_launcher.protocol.states import Status

Event = dict[str, Any]


def launcher(kind: str, t: str = "2026-01-01T00:00:00.000Z", **fields: Any) -> Event:
    return {"src": "launcher", "attempt": 0, "kind": kind, "t": t, **fields}


def ranked(rank: int, kind: str, t: str = "2026-01-01T00:00:00.000Z", **fields: Any) -> Event:
    return {"src": "rank", "rank": rank, "attempt": 0, "kind": kind, "t": t, **fields}


def folded(*events: Event) -> JobView:
    return JobView().apply_all(events)


def steps(count: int, total: int, **metrics: float | None) -> list[Event]:
    return [ranked(0, "step", step=n, total_steps=total, metrics=metrics) for n in range(1, count + 1)]


# States


@given(st.lists(st.sampled_from([*Status, "no such state", None, 5, []]), max_size=12))
def test_only_legal_states_follow_and_the_end_is_the_end(told):
    """Whatever states are told, a job only moves forward, and once it has ended nothing changes it any more."""
    view, order = JobView(), list(Status)
    seen = [view.status]
    for number, status in enumerate(told):
        before = (view.status, view.reason, view.completed_at)
        view.apply(launcher("status", status=status, reason=str(number), t=f"{number:04}"))
        if before[0].is_terminal:
            assert before == (view.status, view.reason, view.completed_at)
        seen.append(view.status)
    active = [status for status in seen if not status.is_terminal]
    assert active == sorted(active, key=order.index)


def test_the_states_of_a_job_and_their_times():
    """Each state has its reason, and the three that people ask for have their time."""
    names = ["queued", "provisioning", "configuring", "running", "completed"]
    view = folded(*(launcher("status", status=name, reason=f"is {name}", t=f"t{n}") for n, name in enumerate(names)))
    assert (Status.COMPLETED, "is completed") == (view.status, view.reason)
    assert ("t0", "t3", "t4") == (view.created_at, view.started_at, view.completed_at)


@pytest.mark.parametrize("status", Status)
def test_every_state_may_fail_but_an_end_may_not(status):
    """A job can end badly from anywhere, and no end becomes another."""
    assert (not status.is_terminal) == status.may_become(Status.FAILED)
    assert not status.may_become(status)
    assert not status.may_become(Status.QUEUED)


# Series


def test_every_step_is_there_with_its_metrics():
    """Columns are aligned with steps; what was not measured, or not finite, is NaN there and None to ask."""
    view = folded(
        ranked(0, "step", step=1, total_steps=3, metrics={"loss": 3.0}),
        ranked(0, "step", step=2, total_steps=3, metrics={"loss": None, "grad_norm": 0.5}, bad=["loss"]),
        ranked(0, "step", step=3, total_steps=3, metrics={"learning_rate": 1e-4}),
    )
    assert [1, 2, 3] == list(view.steps)
    assert (3, 3) == (view.step, view.total_steps)
    assert [
        {"step": 1, "loss": 3.0, "grad_norm": None, "learning_rate": None},
        {"step": 2, "loss": None, "grad_norm": 0.5, "learning_rate": None},
        {"step": 3, "loss": None, "grad_norm": None, "learning_rate": 1e-4},
    ] == view.metric_rows()
    assert [{"step": 1, "loss": 3.0}, {"step": 2, "loss": None}, {"step": 3, "loss": None}] == view.metric_rows(
        ["loss", "no such metric"]
    )
    assert (None, None, 1e-4) == (view.latest("loss"), view.latest("nothing"), view.latest("learning_rate"))


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.none() | st.floats(allow_nan=False, allow_infinity=False)))
)
def test_columns_stay_aligned(told):
    """Metrics may come and go: row i of every column belongs to step i."""
    view = folded(*(ranked(0, "step", step=n, metrics=metrics) for n, metrics in enumerate(told)))
    rows = view.metric_rows()
    assert len(told) == len(rows)
    for row, metrics in zip(rows, told, strict=True):
        assert {name: row[name] for name in metrics} == metrics
        assert all(row[name] is None for name in row.keys() - metrics.keys() - {"step"})


def test_a_hundred_thousand_events_are_counted_right():
    """A long run is folded without losing a step."""
    view = folded(*steps(90_000, 100_000, loss=2.0), *(ranked(1, "heartbeat", step=n) for n in range(10_000)))
    assert (90_000, 100_000) == (len(view.steps), view.total_steps)
    assert 90_000 == len(view.series["loss"]) == len(view.metric_rows(["loss"]))
    assert 9_999 == view.ranks[1].step


def test_time_left_is_told_by_the_last_steps():
    """Steps left times the median of the last twenty; unknown before there is a step, and after the end."""
    assert folded().seconds_left is None
    slow = [ranked(0, "step", step=n, total_steps=100, metrics={"step_seconds": 50.0}) for n in range(1, 31)]
    quick = [ranked(0, "step", step=n, total_steps=100, metrics={"step_seconds": 2.0}) for n in range(31, 51)]
    view = folded(*slow, *quick)
    assert 50 * 2.0 == view.seconds_left
    view.apply(launcher("status", status="failed"))
    assert view.seconds_left is None
    assert folded(*steps(3, 10, step_seconds=None)).seconds_left is None
    assert folded(ranked(0, "step", step=1, metrics={"step_seconds": 1.0})).seconds_left is None


# Ranks and the rest


def test_each_rank_has_its_own_state():
    """Process, phase, step and the highest memory ever of each rank; the job's phase is that of rank 0."""
    view = folded(
        ranked(1, "process", host="h", pid=7, pid_created=1.5, other=1),
        ranked(1, "phase", phase="load"),
        ranked(1, "heartbeat", step=2, phase="train", memory_bytes=5, peak_memory_bytes=9, t="t5"),
        ranked(1, "heartbeat", step=3, memory_bytes=4, peak_memory_bytes=6, t="t4"),
        ranked(0, "phase", phase="tokenize"),
    )
    one = view.ranks[1]
    assert {"host": "h", "pid": 7, "pid_created": 1.5} == one.process
    assert ("train", 3, 4, 9, "t5") == (
        one.phase,
        one.step,
        one.memory_bytes,
        one.peak_memory_bytes,
        one.last_event_at,
    )
    assert "tokenize" == view.phase
    assert "" == folded().phase


def test_what_a_rank_holds_comes_in_two_parts():
    """Weights once they are spread, gradients and optimizer states after step 1; beside what was planned."""
    view = folded(
        launcher("plan", line="plan: …", planned_peak_bytes=11),
        ranked(0, "held", param_bytes=5, placements={"Shard(0) of 2": 3}, dtypes={"weights": "float32"}, other=1),
        ranked(0, "held", grad_bytes=6, optimizer_bytes=7),
    )
    before = {"param_bytes": 5, "placements": {"Shard(0) of 2": 3}, "dtypes": {"weights": "float32"}}
    assert {**before, "grad_bytes": 6, "optimizer_bytes": 7} == view.ranks[0].held
    assert (11, 0) == (view.planned_peak_bytes, folded(launcher("plan", line="")).planned_peak_bytes)


def test_the_launchers_verdict_is_not_a_rank():
    """A failure names the rank that failed, and belongs to the job; the first one counts."""
    verdict = {
        "code": "oom",
        "message": "rank 1/2 failed\nplan",
        "attribution": "customer",
        "log_tail": ["x"],
        "rank": 1,
    }
    view = folded(launcher("failure", **verdict), launcher("failure", **{**verdict, "code": "other"}))
    assert view.failure is not None
    assert ("oom", "rank 1/2 failed", ("x",), 1) == (
        view.failure.code,
        view.failure.headline,
        view.failure.log_tail,
        view.failure.rank,
    )
    assert {} == view.ranks


def test_a_download_is_there_until_it_is_complete():
    """Bytes and time left while a file comes from the hub; nothing before and after."""
    view = folded(ranked(0, "download", file="model", done_bytes=25, total_bytes=100, bytes_per_second=5.0))
    assert view.download is not None
    assert 15.0 == view.download.seconds_left
    view.apply(ranked(0, "download", file="model", done_bytes=30, total_bytes=100, bytes_per_second=0))
    assert view.download.seconds_left is None
    view.apply(ranked(0, "download", file="model", done_bytes=100, total_bytes=100, bytes_per_second=5.0))
    assert view.download is None


def test_plan_warnings_artifact_evaluations_and_requests_are_kept():
    """Everything else that the contract names, where it is looked for."""
    view = folded(
        launcher("plan", line="plan: dp=2", resolved_parallelism={"zero_stage": 0}, warnings=["one"]),
        launcher("warning", message="two"),
        ranked(0, "warning", message="three"),
        launcher("control", request="stop", state="seen"),
        ranked(0, "eval", step=2, metrics={"loss": 1.0}),
        ranked(0, "artifact", path="final", files=["x"], verified=True),
    )
    assert ("plan: dp=2", {"zero_stage": 0}) == (view.plan_line, view.resolved_parallelism)
    assert ["one", "two", "three"] == view.warnings
    assert [("stop", "seen")] == view.controls
    assert [(2, {"loss": 1.0})] == view.evaluations
    assert {"path": "final", "files": ["x"], "verified": True} == view.artifact


def test_the_status_file_says_what_the_events_say():
    """One place decides how a state is written down."""
    view = folded(
        launcher("status", status="running", reason="go", t="t1"),
        *steps(2, 9, loss=2.5),
        launcher("status", status="cancelled", t="t2"),
    )
    assert {
        "status": "cancelled",
        "reason": "",
        "step": 2,
        "total_steps": 9,
        "loss": 2.5,
        "started_at": "t1",
        "completed_at": "t2",
        "error": None,
    } == view.to_status()


# Whatever comes

KINDS = (
    "status", "plan", "phase", "held", "step", "heartbeat", "eval", "checkpoint", "metric", "warning", "control",
    "failure", "artifact", "process", "download", "from the future",
)  # fmt: skip
NAMES = (
    "status", "reason", "line", "warnings", "resolved_parallelism", "phase", "step", "total_steps", "metrics", "t",
    "memory_bytes", "peak_memory_bytes", "planned_peak_bytes", "param_bytes", "placements",
    "done_bytes", "total_bytes", "bytes_per_second", "message", "code",
    "attribution", "log_tail", "rank",
)  # fmt: skip
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
any_event = st.fixed_dictionaries(
    {"kind": st.sampled_from(KINDS)},
    optional={"src": st.sampled_from(["launcher", "rank"]), **dict.fromkeys(NAMES, anything)},
)


@given(st.lists(any_event, max_size=6))
@example([{"src": "rank", "rank": 0, "kind": "step", "step": 10**30, "total_steps": float("inf")}])
@example([{"src": "rank", "rank": 0, "kind": "heartbeat", "step": float("inf")}])
@example([{"src": "rank", "rank": 0, "kind": "step", "step": 1, "metrics": {"loss": "low"}}])
def test_no_event_breaks_the_view(events):
    """Another version's events, with fields of any type, are taken for what they are worth; later ones count."""
    view = folded(*events, ranked(0, "step", step=1, total_steps=2, metrics={"loss": 1.0}))
    assert 1 == view.step
    assert 1.0 == view.latest("loss")
    assert len(view.metric_rows()) == len(view.steps)
    str(view.seconds_left)
    view.to_status()


LAUNCHER = [
    launcher("status", status="queued", t="t0"),
    launcher("status", status="provisioning", t="t1"),
    launcher("plan", line="plan", resolved_parallelism={"a": 1}, warnings=[]),
    launcher("status", status="running", t="t3"),
    launcher("control", request="stop", state="seen", t="t4"),
    launcher("failure", code="oom", message="m", attribution="customer", rank=1, t="t5"),
    launcher("status", status="failed", reason="m", t="t6"),
]
RANKS = [
    [
        ranked(rank, "process", host="h", pid=rank, pid_created=0.5),
        ranked(rank, "phase", phase="train"),
        *(steps(3, 9, loss=2.0, step_seconds=1.0) if rank == 0 else []),
        ranked(rank, "heartbeat", step=3, phase="train", memory_bytes=rank, peak_memory_bytes=9),
        *([ranked(0, "download", file="f", done_bytes=1, total_bytes=2, bytes_per_second=1.0)] if rank == 0 else []),
    ]
    for rank in range(3)
]


@given(st.permutations([writer for writer, events in enumerate([LAUNCHER, *RANKS]) for _ in events]))
def test_how_writers_are_interleaved_does_not_matter(turns):
    """Events of one writer come in its order; how those of several are mixed changes nothing."""
    queues = [list(events) for events in (LAUNCHER, *RANKS)]
    mixed = folded(*(queues[writer].pop(0) for writer in turns))
    in_turn = folded(*LAUNCHER, *(event for events in RANKS for event in events))
    assert asdict(in_turn) == asdict(mixed)


def test_a_loss_that_is_not_finite_is_nan_in_the_series():
    """A diverged step keeps its place in the curve."""
    view = folded(*steps(1, 3, loss=2.0), ranked(0, "step", step=2, metrics={"loss": None}))
    assert math.isnan(view.series["loss"][1])


def test_what_is_told_of_the_rows_is_kept():
    """Each figure under its name, None where it was not told, and nothing else."""
    view = folded(ranked(0, "data", rows=3, kept=2, dropped_by_reason={"too_long": 1}, other="x"))
    assert set(DATA_FIELDS) == set(view.data or ())
    assert (3, 2, {"too_long": 1}, None) == tuple(
        (view.data or {})[key] for key in ("rows", "kept", "dropped_by_reason", "packing")
    )
    assert folded(ranked(0, "phase", phase="tokenize")).data is None


@pytest.mark.parametrize(("planned", "expected"), [(9, 7), (0, 0)])
def test_the_peak_is_that_of_the_rows_once_they_are_known(planned, expected):
    """None of them may be as long as planned; on the processor there is still no figure to compare with."""
    plan = launcher("plan", planned_peak_bytes=planned)
    peak = {"length": 184, "total_bytes": 7, "band_bytes": 1, "phase": "end of backward"}
    assert expected == folded(plan, ranked(0, "data", peak=peak)).planned_peak_bytes
    assert planned == folded(plan, ranked(0, "data", peak=None)).planned_peak_bytes
    assert planned == folded(plan, ranked(0, "data", peak={"length": "x"})).planned_peak_bytes
