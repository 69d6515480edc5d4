"""The fold: events in, the state of a job out. Pure.

Events of one writer come in its order; how those of different writers are interleaved does not matter (but for the
order of warnings).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import isfinite, nan
from statistics import median
from typing import TYPE_CHECKING, Any

from kernel_launcher.protocol.failure import Failure
from kernel_launcher.protocol.states import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kernel_launcher.protocol.events import Event


# What is told of the rows once they are tokenised; lengths are in tokens, ``row`` is the first of them as text,
# ``peak`` what a rank will hold where no row is longer than these.
DATA_FIELDS = (
    "rows", "kept", "cut", "answer_cut", "dropped_by_reason", "p50", "p95", "max", "tokens", "trained_tokens",
    "padding_share", "packing", "row", "peak",
)  # fmt: skip


@dataclass(slots=True)
class RankView:
    """What is known of one rank: its process, phase, step, memory in bytes, and what it holds of the model."""

    process: dict[str, Any] | None = None
    phase: str = ""
    step: int = 0
    memory_bytes: int = 0
    peak_memory_bytes: int = 0
    held: dict[str, Any] = field(default_factory=dict)
    last_event_at: str = ""


@dataclass(slots=True)
class Download:
    """A file on its way from the hub, in bytes and bytes per second."""

    file: str
    done_bytes: int
    total_bytes: int
    bytes_per_second: float

    @property
    def seconds_left(self) -> float | None:
        """Time left at the present rate; None while there is no rate."""
        return (self.total_bytes - self.done_bytes) / self.bytes_per_second if self.bytes_per_second > 0 else None


@dataclass(slots=True)
class Round:
    """What the model answered after ``step`` optimizer steps.

    Each sample has ``prompt``, ``text``, ``tokens``, ``finished``, and ``held_out`` where the prompt is of a row.
    """

    step: int
    samples: list[dict[str, Any]]


@dataclass(slots=True)
class JobView:
    """The state of a job as its events tell it.

    ``steps`` and each column of ``series`` are aligned: ``series["loss"][i]`` belongs to optimizer step ``steps[i]``;
    a value that is missing or was not finite is NaN.
    """

    status: Status = Status.QUEUED
    reason: str = ""
    plan_line: str = ""
    resolved_parallelism: dict[str, Any] = field(default_factory=dict)
    planned_peak_bytes: int = 0
    warnings: list[str] = field(default_factory=list)
    total_steps: int = 0
    steps: array[int] = field(default_factory=lambda: array("q"))
    series: dict[str, array[float]] = field(default_factory=dict)
    ranks: dict[int, RankView] = field(default_factory=dict)
    download: Download | None = None
    evaluations: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    samples: list[Round] = field(default_factory=list)
    failure: Failure | None = None
    data: dict[str, Any] | None = None
    artifact: dict[str, Any] | None = None
    controls: list[tuple[str, str]] = field(default_factory=list)
    created_at: str = ""
    started_at: str = ""
    completed_at: str = ""
    last_event_at: str = ""

    @property
    def step(self) -> int:
        """The last optimizer step that was reported."""
        return self.steps[-1] if self.steps else 0

    @property
    def phase(self) -> str:
        """What rank 0 is doing."""
        return self.ranks[0].phase if 0 in self.ranks else ""

    def latest(self, metric: str) -> float | None:
        """The newest value of a metric, or None where there is none or it was not finite."""
        column = self.series.get(metric)
        if not column or len(column) < len(self.steps) or not isfinite(column[-1]):
            return None
        return column[-1]

    @property
    def seconds_left(self) -> float | None:
        """Steps left times the median of the last 20 step times; None while it cannot be told."""
        times = [value for value in self.series.get("step_seconds", array("d"))[-20:] if isfinite(value)]
        if not times or not self.total_steps or self.status.is_terminal:
            return None
        return (self.total_steps - self.step) * median(times)

    def to_status(self) -> dict[str, Any]:
        """The state of the job now, as the status file has it."""
        return {
            "status": str(self.status),
            "reason": self.reason,
            "step": self.step,
            "total_steps": self.total_steps,
            "loss": self.latest("loss"),
            "started_at": self.started_at,
            "completed_at": self.completed_at,
            "error": self.failure.to_json() if self.failure else None,
        }

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> JobView:
        """The state that ``to_status`` gave: of the steps the last, of their metrics its loss."""
        loss = status.get("loss")
        return cls(
            status=Status(status["status"]),
            reason=str(status.get("reason") or ""),
            total_steps=int(status.get("total_steps") or 0),
            steps=array("q", [int(status.get("step") or 0)]),
            series={} if loss is None else {"loss": array("d", [loss])},
            failure=Failure.from_json(status.get("error")),
            started_at=str(status.get("started_at") or ""),
            completed_at=str(status.get("completed_at") or ""),
        )

    def metric_rows(self, keys: Iterable[str] | None = None) -> list[dict[str, float | int | None]]:
        """One row a step: ``step`` and the metrics, None where a value is missing or was not finite."""
        names = list(self.series) if keys is None else [key for key in keys if key in self.series]
        columns = [_padded(self.series[name], len(self.steps)) for name in names]
        return [
            {"step": step}
            | {name: value if isfinite(value) else None for name, value in zip(names, row, strict=True)}
            for step, *row in zip(self.steps, *columns, strict=True)
        ]

    def apply(self, event: Event) -> None:
        """Take in one event; unknown kinds and fields, and values of another type, are ignored."""
        at = str(event.get("t", ""))
        self.last_event_at = max(self.last_event_at, at)
        rank = event.get("rank")
        try:
            # By source, not by the rank alone: the launcher's verdict names a rank, too.
            if event.get("src") == "rank" and isinstance(rank, int):
                view = self.ranks.setdefault(rank, RankView())
                view.last_event_at = max(view.last_event_at, at)
                _OF_RANK.get(event["kind"], _ignore)(self, view, event)
            else:
                _OF_JOB.get(event["kind"], _ignore)(self, event)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            return  # a field that is not what it is here: no reason to show nothing at all

    def apply_all(self, events: Iterable[Event]) -> JobView:
        """Take in events; returns itself."""
        for event in events:
            self.apply(event)
        return self


def _padded(column: array[float], length: int) -> array[float]:
    return column + array("d", [nan] * (length - len(column)))


def _ignore(*_: Any) -> None:
    """An event of a kind that is not ours."""


def _status(job: JobView, event: Event) -> None:
    try:
        status = Status(event.get("status", ""))
    except ValueError:
        return
    if job.status.is_terminal or (status != job.status and not job.status.may_become(status)):
        return
    job.status, job.reason = status, str(event.get("reason") or "")
    at = str(event.get("t", ""))
    if status is Status.QUEUED:
        job.created_at = at
    elif status is Status.RUNNING:
        job.started_at = at
    elif status.is_terminal:
        job.completed_at = at


def _plan(job: JobView, event: Event) -> None:
    job.plan_line = str(event.get("line") or "")
    job.resolved_parallelism = dict(event.get("resolved_parallelism") or {})
    job.planned_peak_bytes = int(event.get("planned_peak_bytes") or 0)
    job.warnings.extend(event.get("warnings") or [])


def _failure(job: JobView, event: Event) -> None:
    job.failure = job.failure or Failure.from_json(event)


def _warning(job: JobView, event: Event) -> None:
    job.warnings.append(str(event.get("message")))


def _control(job: JobView, event: Event) -> None:
    job.controls.append((str(event.get("request")), str(event.get("state"))))


def _warning_of_rank(job: JobView, _: RankView, event: Event) -> None:
    _warning(job, event)


def _process(_: JobView, rank: RankView, event: Event) -> None:
    rank.process = {key: event.get(key) for key in ("host", "pid", "pid_created")}


def _phase(_: JobView, rank: RankView, event: Event) -> None:
    rank.phase = str(event.get("phase") or "")


def _heartbeat(_: JobView, rank: RankView, event: Event) -> None:
    rank.step = int(event.get("step") or 0)
    rank.phase = str(event.get("phase") or rank.phase)
    rank.memory_bytes = int(event.get("memory_bytes") or 0)
    rank.peak_memory_bytes = max(rank.peak_memory_bytes, int(event.get("peak_memory_bytes") or 0))


def _held(_: JobView, rank: RankView, event: Event) -> None:
    rank.held |= {name: event[name] for name in _HELD if name in event}


def _step(job: JobView, rank: RankView, event: Event) -> None:
    step = int(event["step"])
    values = {name: nan if value is None else float(value) for name, value in event.get("metrics", {}).items()}
    rank.step = step
    job.total_steps = int(event.get("total_steps") or job.total_steps)
    before = len(job.steps)
    job.steps.append(step)
    for name, value in values.items():
        column = job.series.get(name)
        if column is None:
            column = job.series[name] = array("d")
        if len(column) < before:
            column.extend([nan] * (before - len(column)))
        column.append(value)


def _download(job: JobView, _: RankView, event: Event) -> None:
    done, total = int(event.get("done_bytes") or 0), int(event.get("total_bytes") or 0)
    rate = float(event.get("bytes_per_second") or 0)
    job.download = Download(str(event.get("file")), done, total, rate) if done < total else None


def _data(job: JobView, _: RankView, event: Event) -> None:
    data = {key: event.get(key) for key in DATA_FIELDS}
    if peak := event.get("peak"):
        sizes = {key: int(peak[key]) for key in ("length", "total_bytes", "band_bytes")}
        data["peak"] = {**sizes, "phase": str(peak["phase"])}
        job.planned_peak_bytes = job.planned_peak_bytes and sizes["total_bytes"]
    job.data = data


def _eval(job: JobView, _: RankView, event: Event) -> None:
    job.evaluations.append((int(event.get("step") or 0), dict(event.get("metrics") or {})))


def _samples(job: JobView, _: RankView, event: Event) -> None:
    answers = [dict(answer) for answer in event["samples"] if {"prompt", "text"} <= answer.keys()]
    if answers:  # a round that was skipped says why, and has none
        job.samples.append(Round(int(event["step"]), answers))


def _artifact(job: JobView, _: RankView, event: Event) -> None:
    job.artifact = {key: event.get(key) for key in ("path", "files", "verified")}


_HELD = ("param_bytes", "grad_bytes", "optimizer_bytes", "placements", "dtypes", "weights_hash")
_OF_JOB = {"status": _status, "plan": _plan, "failure": _failure, "warning": _warning, "control": _control}
_OF_RANK = {
    "process": _process,
    "phase": _phase,
    "heartbeat": _heartbeat,
    "held": _held,
    "step": _step,
    "download": _download,
    "data": _data,
    "eval": _eval,
    "samples": _samples,
    "artifact": _artifact,
    "warning": _warning_of_rank,
}
