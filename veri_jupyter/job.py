"""``Job``: a handle on one job. It holds nothing that a fresh kernel could not read again from the run folder."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, NoReturn

from kernel_launcher.errors import JobFailed, VeriError
from kernel_launcher.launcher import answers, client
from kernel_launcher.planner import Plan
from kernel_launcher.protocol.events import EventReader
from kernel_launcher.protocol.files import read_json
from kernel_launcher.protocol.states import Status
from kernel_launcher.spec import JobSpec
from veri_jupyter import not_yet
from veri_jupyter.monitor import static
from veri_jupyter.monitor.show import follow, show, summarise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kernel_launcher.protocol.events import Event
    from kernel_launcher.protocol.failure import Failure
    from kernel_launcher.protocol.fold import JobView
    from kernel_launcher.protocol.index import Entry
    from kernel_launcher.protocol.summary import Summary


class Detached(KeyboardInterrupt):
    """The wait for a job was interrupted; the job goes on."""

    def __init__(self, job_id: str) -> None:
        what_now = f"  see it again: %veri_attach {job_id}\n  stop it: %veri_stop {job_id}"
        super().__init__(f"the wait was interrupted; the job goes on\n{what_now}")

    def _render_traceback_(self) -> list[str]:
        return ["Detached", *str(self).splitlines()]


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
        return self._view.status.value

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
        keys: Iterable[str] | None = None,
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int = 500,
    ) -> list[dict[str, float | int | None]]:
        """What each optimizer step measured, a row a step; None where a value is missing or was not finite.

        Args:
            keys: Metrics, such as ``loss``; all of them by default.
            from_step: The first step, inclusive.
            to_step: The last step, inclusive.
            max_points: Rows at most, spread evenly; the first and the last step are always among them.
        """
        view = self._view
        low = 0 if from_step is None else bisect_left(view.steps, from_step)
        high = len(view.steps) if to_step is None else bisect_right(view.steps, to_step)
        return _thinned(view.metric_rows(keys)[low:high], max_points)

    def logs(self, rank: int | None = None, n: int = 200) -> list[str]:
        """The last ``n`` lines of one rank's log, or of the launcher's and each rank's under headings."""
        return client.log_lines(self.entry, rank, n)

    def stop(self, *, now: bool = False) -> str:
        """Stop it, wait until it has ended, and say how; ``now`` gives the ranks no time to end by themselves."""
        return client.stop(self.entry, now=now).status.value

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
        try:
            view = follow(self.entry, timeout, quiet=quiet)
        except KeyboardInterrupt:
            raise Detached(self.id) from None
        if view.status is not Status.COMPLETED:
            raise self._failed(view)

    def generate(self, prompts: str | Sequence[Any], *, base: bool = False, **options: Any) -> list[str]:
        """Answers to prompts, from a process of its own; waits for the end of the job first.

        Args:
            prompts: Texts, each a user's turn, or lists of messages; one text is one prompt.
            base: Ask the base model, as it was before training.
            options: ``max_new_tokens``, ``temperature``.
        """
        self.wait()
        return answers.generate(self.entry, [prompts] if isinstance(prompts, str) else prompts, base=base, **options)

    @property
    def _view(self) -> JobView:
        return self._watcher.refresh()

    @property
    def summary(self) -> Summary:
        """The job as of now, in words."""
        return summarise(self.entry, self._view)

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
        return f"<Job {self.id}: {self.summary.line()}>"

    def __str__(self) -> str:
        return self.summary.text()

    def _repr_html_(self) -> str:
        return static.card(self.summary)

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
