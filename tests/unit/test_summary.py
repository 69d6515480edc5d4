"""What the summary of a job says in each state, word for word."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from kernel_launcher.protocol.fold import JobView
from kernel_launcher.protocol.index import Entry
from kernel_launcher.protocol.summary import Summary, duration, memory, size

ENTRY = Entry(
    id="first-20250101-101010-ab12",
    name="first",
    root="/home/ada/runs/first",
    created_at="2025-01-01T10:10:10.000Z",
    fingerprint="x",
)
NOW = datetime.fromisoformat("2025-01-01T11:12:22+01:00")


def event(kind: str, **fields: Any) -> dict[str, Any]:
    source = "rank" if "rank" in fields and kind != "failure" else "launcher"
    return {"kind": kind, "src": source, "t": "2025-01-01T10:12:10.000Z", **fields}


def status(word: str) -> dict[str, Any]:
    return event("status", status=word)


def step(number: int, **metrics: float | None) -> dict[str, Any]:
    return event("step", rank=0, step=number, total_steps=30, metrics={"loss": 3.5 - number / 10, **metrics})


def summary(*events: dict[str, Any], now: datetime = NOW) -> Summary:
    return Summary.of(ENTRY, JobView(created_at=ENTRY.created_at).apply_all(events), now)


RUNNING = [
    status("running"),
    step(1, tokens_per_second=400.0, step_seconds=4.0),
    step(2, tokens_per_second=1412.3, step_seconds=4.0),
    event("heartbeat", rank=0, step=2, phase="train", memory_bytes=1, peak_memory_bytes=1_240_000_000),
    event("heartbeat", rank=1, step=2, phase="train", memory_bytes=1, peak_memory_bytes=987_000_000),
]


def test_a_running_job() -> None:
    """Where it is, how it does, how long it takes, where it writes, when that was true, how to see it again."""
    expected = (
        "● running first: Step 2 of 30, about 1 min 52 s left\n"
        "  loss 3.400 → 3.300 · tokens/s 1,412 · peak memory 1.2 GB, 987 MB · elapsed 2 min 12 s\n"
        "  run folder: /home/ada/runs/first\n"
        "  as of 11:12:22 on 2025-01-01 · if this stands still: %veri_attach first-20250101-101010-ab12"
    )
    assert expected == summary(*RUNNING).text()


def test_the_measured_peak_stands_beside_the_planned_one() -> None:
    """Where the plan says one of the same thing."""
    plan = event("plan", line="plan: …", planned_peak_bytes=1_300_000_000)
    assert "peak memory 1.2 GB, 987 MB (planned: 1.3 GB)" in summary(plan, *RUNNING).line()


def test_a_running_job_in_one_line() -> None:
    """The line that a terminal follows."""
    expected = (
        "● running first · Step 2 of 30, about 1 min 52 s left · "
        "loss 3.400 → 3.300 · tokens/s 1,412 · peak memory 1.2 GB, 987 MB"
    )
    assert expected == summary(*RUNNING).line()


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], "○ queued first · Starting"),
        ([status("provisioning")], "○ provisioning first · Starting"),
        ([status("configuring"), event("phase", rank=0, phase="load")], "◐ configuring first · Loading the model"),
        (
            [status("running"), event("phase", rank=0, phase="first_step")],
            "● running first · Working on the first step",
        ),
        (
            [*RUNNING[:1], step(30), event("phase", rank=0, phase="final")],
            "● running first · Step 30 of 30, writing the",
        ),
        ([*RUNNING, event("control", request="stop", state="seen")], "● stopping first · Step 2 of 30"),
        ([*RUNNING, status("completed")], "✓ completed first · Done in 2 min, 2 steps · loss 3.400 → 3.300"),
        ([*RUNNING, status("cancelled")], "■ cancelled first · Stopped at step 2 of 30, after 2 min · loss"),
        ([*RUNNING, status("failed")], "✗ failed first · Failed; step 2 of 30, after 2 min"),
    ],
)
def test_each_state_has_its_words(events: list[dict[str, Any]], expected: str) -> None:
    """Glyph, word and what is going on, in every state."""
    assert summary(*events).line().startswith(expected)


def test_a_failure_says_what_whose_and_the_last_lines() -> None:
    """Headline, code, attribution, and the end of the log, not all of it."""
    failed = summary(
        *RUNNING,
        event(
            "failure",
            rank=1,
            code="oom",
            message="rank 1/2 (node 0, local_rank 1) failed: OutOfMemoryError: too much.\nplan: dp=2\nTraceback",
            attribution="customer",
            log_tail=[f"line {number}" for number in range(200)],
        ),
        status("failed"),
    )
    text = failed.text()
    headline = "rank 1/2 (node 0, local_rank 1) failed: OutOfMemoryError: too much; step 2 of 30, after 2 min"
    assert text.startswith(f"✗ failed first: {headline}\n")
    assert "  oom: yours to fix\n" in text
    assert "  | line 199\n" in text
    assert "line 187\n" not in text
    assert "Traceback" not in text


def test_a_download_shows_bytes_and_time_left() -> None:
    """What is on its way, how much of it, how long it takes."""
    download = event(
        "download", rank=0, file="model.safetensors", done_bytes=120e6, total_bytes=2690e6, bytes_per_second=9e6
    )
    expected = "Downloading model.safetensors: 120 MB of 2.7 GB, about 4 min 46 s left"
    assert expected == summary(status("configuring"), download).progress


def test_a_loss_that_is_not_finite_is_said_so() -> None:
    """A diverged run does not look like one that has no loss."""
    assert ("loss", "3.400 → not finite") in summary(*RUNNING[:2], step(2, loss=None)).figures


def test_no_news_is_said() -> None:
    """A job that reports nothing for a while is not shown as if it had just spoken."""
    later = datetime.fromisoformat("2025-01-01T10:13:40+00:00")
    assert ["no news for 1 min 30 s"] == summary(*RUNNING, now=later).remarks
    assert [] == summary(*RUNNING).remarks
    assert [] == summary(*RUNNING, status("completed"), now=later).remarks


def test_a_warning_is_shown_once() -> None:
    """Ranks that warn of the same thing are one warning."""
    warning = {"message": "rows were cut."}
    both = [event("warning", rank=0, **warning), event("warning", rank=1, **warning)]
    assert ["warning: rows were cut."] == summary(*both).remarks


def test_many_ranks_are_summed_up() -> None:
    """More than eight ranks: smallest, middle, largest."""
    ranks = [n * 10**9 for n in range(1, 10)]
    assert "1.0 GB, 2.0 GB" == memory(ranks[:2])
    assert "1.0 GB to 9.0 GB on 9 ranks, median 5.0 GB" == memory(ranks)


def test_the_model_is_named_once_it_is_there() -> None:
    """The folder that matters: the run's, then the model's."""
    assert ("run folder", "/home/ada/runs/first") == summary(*RUNNING).place
    assert ("model", "/home/ada/runs/first/final") == summary(*RUNNING, status("completed")).place


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0 s"), (59.6, "1 min"), (45, "45 s"), (130, "2 min 10 s"), (3840, "1 h 04"), (-3, "0 s")],
)
def test_durations(seconds: float, expected: str) -> None:
    """Time spans as people say them."""
    assert expected == duration(seconds)


def test_sizes() -> None:
    """Decimal units."""
    assert ["12 MB", "999 MB", "1.5 GB"] == [size(12e6), size(999e6), size(1.5e9)]


def test_the_share_of_steps_stays_between_none_and_all() -> None:
    """A bar can be drawn from it."""
    running = summary(*RUNNING)
    assert [0.0, 2 / 30, 1.0] == [summary().share, running.share, replace(running, step=40).share]


def test_the_loss_is_a_mean_of_steps() -> None:
    """One batch is no measure: five steps at either end, and one while there are few, so that it does not move."""
    steps = [step(number, loss=float(number)) for number in range(1, 13)]
    assert ("loss", "3.000 → 10.000 (5 steps each)") in summary(*RUNNING[:1], *steps).figures
    assert ("loss", "1.000 → 4.000") in summary(*RUNNING[:1], *steps[:4]).figures
    assert ("loss", "1.000 → 1.000") in summary(*RUNNING[:1], *steps[:1]).figures
