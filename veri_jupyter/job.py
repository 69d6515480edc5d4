"""``Job``: a handle on one job. It holds nothing that a fresh kernel could not read again from the run folder."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from kernel_launcher.errors import JobFailed, VeriError
from kernel_launcher.launcher import answers, client
from kernel_launcher.launcher.watcher import final_status
from kernel_launcher.planner import Plan
from kernel_launcher.protocol.events import EventReader
from kernel_launcher.protocol.files import read_json
from kernel_launcher.protocol.fold import JobView
from kernel_launcher.protocol.states import Status
from kernel_launcher.spec import JobSpec
from veri_jupyter import checks, not_yet
from veri_jupyter.environment import DISPLAYS
from veri_jupyter.monitor import static
from veri_jupyter.monitor.moment import Moment, Planned
from veri_jupyter.monitor.sample_table import SampleTable
from veri_jupyter.monitor.series import LEAST_POINTS, MOST_POINTS
from veri_jupyter.monitor.show import follow, need_widgets, pump, show, summarise, tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from kernel_launcher.protocol.events import Event
    from kernel_launcher.protocol.failure import Failure
    from kernel_launcher.protocol.index import Entry
    from kernel_launcher.protocol.summary import Summary


class Detached(KeyboardInterrupt):
    """A call was interrupted while a job goes on."""

    def __init__(self, job_id: str, what: str) -> None:
        super().__init__(f"{what}\n  see it again: %veri_attach {job_id}\n  stop it: %veri_stop {job_id}")

    def _render_traceback_(self) -> list[str]:
        return ["Detached", *str(self).splitlines()]


@contextmanager
def detaching(job_id: str, what: str = "the cell was interrupted, not the job") -> Iterator[None]:
    """Whoever interrupts this is told how to see the job again, and how to stop it.

    Raises:
        Detached: In the place of any other KeyboardInterrupt.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise Detached(job_id, what) from None


class Job:
    """One job, running or over. Made by ``train``, ``attach`` and ``jobs``.

    Attributes:
        entry: The job in the index: where its files are.
    """

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._watcher = client.Watcher(entry)

    @property
    def id(self) -> str:
        return self.entry.id

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def status(self) -> str:
        """``queued``, ``provisioning``, ``configuring``, ``running``; ``completed``, ``failed`` or ``cancelled``."""
        ended = final_status(self.entry.run)
        return str(ended["status"]) if ended else self._view.status.value

    @property
    def spec(self) -> JobSpec:
        """What was asked."""
        return JobSpec.from_sections(_read(self.entry.run.spec)["spec"])

    @property
    def plan(self) -> Plan:
        """What was decided."""
        return Plan.from_json(_read(self.entry.run.plan))

    @property
    def error(self) -> Failure | None:
        """Why it failed: code, message, attribution, the last lines of the log; None if it did not."""
        return self._view.failure

    @property
    def final_dir(self) -> Path:
        """The folder of the trained model; waits for the end, and raises what ``wait`` raises."""
        self.wait()
        return self.entry.run.final

    def events(self) -> list[Event]:
        """Every event so far, by time."""
        return EventReader(self.entry.run).read()

    def metrics(
        self,
        keys: str | Iterable[str] | None = None,
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int = 500,
    ) -> list[dict[str, float | int | None]]:
        """What each optimizer step measured, a row a step; None where a value is missing or was not finite.

        Args:
            keys: Metrics, such as ``loss``, or one of them; all of them by default.
            from_step: The first step, inclusive.
            to_step: The last step, inclusive.
            max_points: Rows at most, spread evenly; the first and the last step are always among them.

        Raises:
            InvalidRequest: There is no such metric (before the first step there is no row either), or no such step.
        """
        from_step = None if from_step is None else checks.whole("from_step", from_step)
        to_step = None if to_step is None else checks.whole("to_step", to_step)
        max_points = checks.whole("max_points", max_points)
        view = self._view
        if not view.steps:
            return []
        keys = None if keys is None else checks.metrics(keys, list(view.series))
        low = 0 if from_step is None else bisect_left(view.steps, from_step)
        high = len(view.steps) if to_step is None else bisect_right(view.steps, to_step)
        return _thinned(view.metric_rows(keys)[low:high], max_points)

    def samples(self) -> SampleTable:
        """What the model answered to the same prompts before it was trained, during, and at the end.

        Rounds that were skipped are left out; ``events()`` has them with the reason.
        """
        return SampleTable(self._view.samples)

    def logs(self, rank: int | None = None, n: int = 200) -> list[str]:
        """The last ``n`` lines of one rank's log, or of the launcher's and each rank's under headings."""
        rank = None if rank is None else checks.whole("rank", rank)
        return client.log_lines(self.entry, rank, checks.whole("n", n))

    def stop(self, *, now: bool = False) -> str:
        """Stop it, wait until it has ended, and say how; ``now`` gives the ranks no time to end by themselves."""
        now = checks.flag("now", now)
        with detaching(self.id, "stopping was interrupted before the job had ended"):
            view = client.stop(self.entry, now=now)
            if view.status.is_terminal:
                pump.settle(self.id)
        return view.status.value

    def wait(self, timeout: float | None = None, *, quiet: bool = False) -> None:
        """Wait until it has completed, in sight of its summary. Interrupting the wait leaves the job running.

        Args:
            timeout: Seconds to wait at most.
            quiet: Show nothing meanwhile.

        Raises:
            JobFailed: It failed or was stopped; carries ``error``.
            TimeoutError: It goes on after ``timeout`` seconds.
            KeyboardInterrupt: The wait was interrupted.
        """
        timeout = None if timeout is None else checks.amount("timeout", timeout)
        with detaching(self.id, "the wait was interrupted; the job goes on"):
            view = follow(self.entry, timeout, quiet=checks.flag("quiet", quiet))
        if view.status is not Status.COMPLETED:
            raise self._failed(view)

    def generate(
        self,
        prompts: str | Sequence[Any],
        *,
        base: bool = False,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
    ) -> list[str]:
        """Answers to prompts, from a process of its own; waits for the end of the job first.

        Args:
            prompts: A text, which is a user's turn; a chat, which is a list of messages; or a list of these.
            base: Ask the base model, as it was before training.
            max_new_tokens: Tokens of an answer at most.
            temperature: 0 takes the likeliest token each time.

        Raises:
            InvalidRequest: There is no such prompt or value.
            JobFailed: The job failed or was stopped.
        """
        asked = checks.prompts(prompts)
        base = checks.flag("base", base)
        options = {
            "max_new_tokens": checks.whole("max_new_tokens", max_new_tokens, 1),
            "temperature": checks.amount("temperature", temperature),
        }
        self.wait()
        if not asked:
            return []
        model = f"{self.name}'s base model" if base else f"the model of {self.name}"
        tell([f"asking {model} in a process of its own: the libraries and the weights are loaded first…"])
        return answers.generate(self.entry, asked, base=base, **options)

    def dashboard(self, display: str = "auto") -> None:
        """Show it live: loss, figures, memory, samples, speed, log, and a button that stops it.

        Args:
            display: ``widget``, ``static`` (needs no script), or ``auto``: the widget where somebody looks at it.

        Raises:
            InvalidRequest: There is no such way to show it.
            VeriError: The packages of the widget are missing.
        """
        show(self.entry, checks.choice("display", display, DISPLAYS))

    def figure(self, max_points: int = MOST_POINTS) -> Any:
        """The loss, and for DPO margin and accuracy, as a plotly figure for a paper.

        Args:
            max_points: Of a line; the first, the last, the lowest and the highest are always among them.

        Raises:
            InvalidRequest: There is no such number of points.
            VeriError: plotly is missing.
        """
        most = checks.whole("max_points", max_points, LEAST_POINTS)
        need_widgets("A figure")
        from veri_jupyter.monitor.figures import paper

        return paper(self.moment, most)

    @property
    def _view(self) -> JobView:
        return self._watcher.refresh()

    @property
    def summary(self) -> Summary:
        """The job as of now, in words."""
        return summarise(self.entry, self._view)

    @property
    def moment(self) -> Moment:
        """The job as of now, as pictures are made of it."""
        return Moment.of(self.entry, self._view, Planned.of(self.entry))

    @property
    def brief(self) -> Summary:
        """The summary for a list: of a job that has ended the events are not read, so its first loss is not known."""
        ended = final_status(self.entry.run)
        if ended is None:
            return self.summary
        return replace(summarise(self.entry, JobView.from_status(ended)), first_loss=None)

    def _failed(self, view: JobView) -> JobFailed:
        hint = f"See job.error, or %veri_logs {self.id}"
        if view.failure is None:
            return JobFailed(view.status.value, f"{self.id} was stopped at step {view.step}.", hint)
        return JobFailed(view.failure.code, f"{self.id} failed: {view.failure.headline}", hint, view.failure)

    def __getattr__(self, name: str) -> NoReturn:
        if name in not_yet.JOB:
            not_yet.refuse(f"Job.{name}", not_yet.JOB[name])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<Job {self.id}: {self.brief.line()}>"

    def __str__(self) -> str:
        return self.summary.text()

    def _repr_html_(self) -> str:
        moment = self.moment
        return static.card(moment.summary) + str(static.chart(moment)["text/html"])

    def _ipython_display_(self) -> None:
        show(self.entry)


def _read(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise VeriError("run_folder_missing", f"{path} cannot be read.", "Was the run folder moved or deleted?")
    return value


def _thinned(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    if len(rows) <= most:
        return rows
    if most < 2:
        return rows[-1:] if most == 1 else []
    last = len(rows) - 1
    return [rows[round(place * last / (most - 1))] for place in range(most)]
