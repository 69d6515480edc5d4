"""One look at a job, in words: what the notebook, the saved notebook and the command line all show. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING

from kernel_launcher.protocol.failure import SELF_EXPLANATORY
from kernel_launcher.protocol.files import readable
from kernel_launcher.protocol.states import Status

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from kernel_launcher.protocol.failure import Failure
    from kernel_launcher.protocol.fold import Download, JobView, Round
    from kernel_launcher.protocol.index import Entry

STEPS_AVERAGED = 5
TAIL_SHOWN = 12
QUIET_SECONDS = 30  # ranks report every few seconds; a slow step on a processor takes a few more
MOST_RANKS_LISTED = 8
SAMPLE_CHARACTERS = 60

GLYPHS = {
    Status.QUEUED: "○",
    Status.PROVISIONING: "○",
    Status.CONFIGURING: "◐",
    Status.RUNNING: "●",
    Status.COMPLETED: "✓",
    Status.FAILED: "✗",
    Status.CANCELLED: "■",
}
_PHASES = {
    "import": "importing the libraries",
    "load": "loading the model",
    "tokenize": "reading and tokenising the data",
    "preflight": "checking data and memory",
    "first_step": "working on the first step",
    "eval": "evaluating",
    "save": "saving",
    "final": "writing the final model",
}
_WHOSE = {
    "customer": "yours to fix",
    "platform": "the fault of the machine or of what is around it, not of your settings",
    "pending": "whose fault it is cannot be told from here",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One snapshot of a job.

    Attributes:
        id: The job.
        name: Its name.
        folder: Its run folder.
        final: The folder of the trained model; None until the job is complete.
        status: Where it stands.
        stopping: Whether it was asked to stop and has not ended yet.
        phase: What rank 0 is doing.
        step: The last optimizer step; ``total_steps`` of them, 0 while that is unknown.
        first_loss: Mean loss of the first five steps, the loss of the first while there are fewer than ten; NaN when
            one was not finite, None while it is not known.
        loss: Mean loss of as many last steps.
        loss_steps: How many these are.
        tokens_per_second: Over all ranks.
        peak_memory_bytes: Of each rank that has reported, by rank.
        planned_peak_bytes: What the plan says of each; 0 where it does not, or of something else than is measured.
        elapsed_seconds: From the cell to the end, or to this look.
        seconds_left: To the last step; None while it cannot be told.
        quiet_seconds: Since the last event of a job that has not ended.
        download: A file on its way from the hub.
        warnings: What the plan and the ranks warned of.
        sample: What the model answered last, in a line.
        failure: Why it failed.
        as_of: When this was looked at, in the reader's time zone.
    """

    id: str
    name: str
    folder: str
    final: str | None
    status: Status
    stopping: bool
    phase: str
    step: int
    total_steps: int
    first_loss: float | None
    loss: float | None
    loss_steps: int
    tokens_per_second: float | None
    peak_memory_bytes: tuple[int, ...]
    planned_peak_bytes: int
    elapsed_seconds: float
    seconds_left: float | None
    quiet_seconds: float
    download: Download | None
    warnings: tuple[str, ...]
    sample: str | None
    failure: Failure | None
    as_of: datetime

    @classmethod
    def of(cls, entry: Entry, view: JobView, now: datetime) -> Summary:
        """The summary of a job as it is in ``view``, at ``now`` (with its time zone)."""
        losses = view.series.get("loss")
        width = STEPS_AVERAGED if losses and len(losses) >= 2 * STEPS_AVERAGED else 1
        over = view.status.is_terminal
        return cls(
            id=entry.id,
            name=entry.name,
            folder=entry.root,
            final=str(entry.run.final) if view.status is Status.COMPLETED else None,
            status=view.status,
            stopping=not over and ("stop", "seen") in view.controls,
            phase=view.phase,
            step=view.step,
            total_steps=view.total_steps,
            first_loss=_mean(losses[:width]) if losses else None,
            loss=_mean(losses[-width:]) if losses else None,
            loss_steps=width,
            tokens_per_second=view.latest("tokens_per_second"),
            peak_memory_bytes=tuple(
                rank.peak_memory_bytes for _, rank in sorted(view.ranks.items()) if rank.peak_memory_bytes
            ),
            planned_peak_bytes=view.planned_peak_bytes,
            elapsed_seconds=_seconds(entry.created_at, view.completed_at, now),
            seconds_left=view.seconds_left,
            quiet_seconds=0.0 if over else _seconds(view.last_event_at, "", now),
            download=None if over else view.download,
            warnings=tuple(dict.fromkeys(view.warnings)),
            sample=_sample(view.samples[-1]) if view.samples else None,
            failure=view.failure,
            as_of=now,
        )

    @property
    def glyph(self) -> str:
        return GLYPHS[self.status]

    @property
    def word(self) -> str:
        """The status in one word."""
        return "stopping" if self.stopping else str(self.status)

    @property
    def share(self) -> float:
        """Part of the steps that is done, 0 to 1."""
        if self.status is Status.COMPLETED:
            return 1.0
        return min(1.0, self.step / self.total_steps) if self.total_steps else 0.0

    @property
    def progress(self) -> str:
        """How far it is, in one sentence without its full stop."""
        took, steps = duration(self.elapsed_seconds), self._steps()
        match self.status:
            case Status.COMPLETED:
                return f"Done in {took}, {self.step} steps"
            case Status.FAILED:
                what = self.failure.headline.rstrip(".") if self.failure else "Failed"
                return f"{what}; {steps}, after {took}"
            case Status.CANCELLED:
                return f"Stopped at {steps}, after {took}"
        if self.download:
            return _download(self.download)
        if not self.step:
            return _PHASES.get(self.phase, "starting").capitalize()
        if self.step == self.total_steps or self.phase in ("eval", "save", "final"):
            return f"{steps}, {_PHASES.get(self.phase, 'finishing')}".capitalize()
        left = "" if self.seconds_left is None else f", about {duration(self.seconds_left)} left"
        return f"{steps}{left}".capitalize()

    @property
    def figures(self) -> list[tuple[str, str]]:
        """What was measured, as label and value; what is not known yet is left out."""
        found = []
        if self.loss is not None:
            first = "" if self.first_loss is None else f"{_loss(self.first_loss)} → "
            of = f" ({self.loss_steps} steps each)" if self.loss_steps > 1 else ""
            found.append(("loss", first + _loss(self.loss) + of))
        if self.tokens_per_second is not None:
            found.append(("tokens/s", f"{self.tokens_per_second:,.0f}"))
        if self.peak_memory_bytes:
            planned = f" (planned: {size(self.planned_peak_bytes)})" if self.planned_peak_bytes else ""
            found.append(("peak memory", memory(self.peak_memory_bytes) + planned))
        if not self.status.is_terminal:
            found.append(("elapsed", duration(self.elapsed_seconds)))
        return found

    @property
    def remarks(self) -> list[str]:
        """What a person should know besides, a line each."""
        found = [f"warning: {warning}" for warning in self.warnings]
        if self.sample:
            found.append(self.sample)
        if self.quiet_seconds > QUIET_SECONDS:
            found.append(f"no news for {duration(self.quiet_seconds)}")
        if self.failure:
            whose = _WHOSE.get(self.failure.attribution, self.failure.attribution)
            found.append(f"{self.failure.code}: {whose}")
        return [readable(line) for line in found]

    @property
    def log_tail(self) -> tuple[str, ...]:
        """The last lines of a failed job's log."""
        if self.failure is None or self.failure.code in SELF_EXPLANATORY:
            return ()
        return tuple(map(readable, self.failure.log_tail[-TAIL_SHOWN:]))

    @property
    def place(self) -> tuple[str, str]:
        """What to call the folder that matters now, and its path."""
        return ("model", self.final) if self.final else ("run folder", self.folder)

    @property
    def attach(self) -> str:
        """The line that shows this job again in a notebook."""
        return f"%veri_attach {self.id}"

    @property
    def seen(self) -> str:
        """When this was true; with the day, because it is read in saved notebooks, too."""
        return f"as of {self.as_of:%H:%M:%S} on {self.as_of:%Y-%m-%d}"

    @property
    def again(self) -> str:
        """When to use ``attach``: a card in a page that was reloaded is not kept current any more."""
        return "again" if self.status.is_terminal else "if this stands still"

    def line(self) -> str:
        """The job in one line, for following it in a terminal."""
        figures = [f"{label} {value}" for label, value in self.figures if label != "elapsed"]
        return " · ".join([f"{self.glyph} {self.word} {self.name}", self.progress, *figures])

    def text(self, again: str | None = None) -> str:
        """The job in a few lines; the last says how to see it ``again``, by default in a notebook."""
        lines = [f"{self.glyph} {self.word} {self.name}: {self.progress}"]
        if self.figures:
            lines.append(" · ".join(f"{label} {value}" for label, value in self.figures))
        lines += [*self.remarks, *(f"| {line}" for line in self.log_tail)]
        label, path = self.place
        lines += [f"{label}: {path}", f"{self.seen} · {self.again}: {again or self.attach}"]
        return "\n  ".join(lines)

    def _steps(self) -> str:
        return f"step {self.step} of {self.total_steps}" if self.total_steps else f"step {self.step}"


def duration(seconds: float) -> str:
    """A time span as people say it: ``45 s``, ``2 min 10 s``, ``1 h 04``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60:02d}"


def size(count: float) -> str:
    """Bytes in decimal MB or GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def memory(ranks: Sequence[int]) -> str:
    """Bytes of each rank; of more than eight, the smallest, the middle and the largest."""
    if len(ranks) > MOST_RANKS_LISTED:
        return f"{size(min(ranks))} to {size(max(ranks))} on {len(ranks)} ranks, median {size(median(ranks))}"
    return ", ".join(size(rank) for rank in ranks)


def after(step: int) -> str:
    """When the model answered, as a heading: ``base`` before the first step."""
    return f"step {step}" if step else "base"


def brief(text: str, most: int = SAMPLE_CHARACTERS) -> str:
    """A text in one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _sample(answered: Round) -> str:
    first = answered.samples[0]
    return (
        f"sample, {after(answered.step)}: {brief(str(first['prompt']))} → {brief(str(first['text'])) or '(nothing)'}"
    )


def _mean(values: array[float]) -> float:
    return sum(values) / len(values)


def _loss(value: float) -> str:
    return f"{value:.3f}" if isfinite(value) else "not finite"


def _download(file: Download) -> str:
    left = "" if file.seconds_left is None else f", about {duration(file.seconds_left)} left"
    return f"Downloading {readable(file.file)}: {size(file.done_bytes)} of {size(file.total_bytes)}{left}"


def _seconds(start: str, end: str, now: datetime) -> float:
    if not start:
        return 0.0
    last = datetime.fromisoformat(end) if end else now
    return max(0.0, (last - datetime.fromisoformat(start)).total_seconds())
