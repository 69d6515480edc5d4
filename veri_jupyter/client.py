"""``Client``: the same functions under the names of a training service."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.launcher.client import find
from kernel_launcher.protocol import index
from kernel_launcher.protocol.states import Status
from veri_jupyter import api, checks, not_yet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from veri_jupyter.job import Job

    # ``list`` is a verb below.
    Jobs = list[Job]
    Rows = list[dict[str, float | int | None]]


class Client:
    """Jobs of this user on this machine."""

    def __init__(self) -> None:
        self.training_jobs = TrainingJobs()


class TrainingJobs:
    """The verbs; a job is named by its id or its beginning, its name, its folder, or ``last``."""

    def create(
        self,
        *,
        base_model: str,
        dataset_id: str | None = None,
        method: str = "sft_text",
        hyperparameters: Mapping[str, Any] | None = None,
        gpu_type: str = "auto",
        gpu_count: int | None = None,
        **settings: Any,
    ) -> Job:
        """Start a job; ``settings`` and errors are those of ``train``."""
        return api.train(
            {"hyperparameters": checks.mapping("hyperparameters", hyperparameters)},
            base_model=base_model,
            dataset_id=dataset_id,
            method=method,
            gpu_type=gpu_type,
            gpu_count=gpu_count,
            **settings,
        )

    def create_from_config(self, config: Mapping[str, Any] | str | Path, **settings: Any) -> Job:
        """Start the job of a dict, a TOML file or its text; ``settings`` and errors are those of ``train``."""
        return api.train(config, **settings)

    def get(self, job_id: str) -> Job:
        """One job.

        Raises:
            JobNotFound: None, or more than one, fits.
        """
        return api.attach(job_id)

    def list(
        self, limit: int = 20, after: str | None = None, status: str | None = None, method: str | None = None
    ) -> Jobs:
        """Jobs, newest first.

        Args:
            limit: How many at most.
            after: The last job of the page before.
            status: Only those that stand there.
            method: Only those that learn this way.

        Raises:
            InvalidRequest: There is no such status, or no such number of jobs.
            JobNotFound: There is no job ``after``.
        """
        limit = checks.whole("limit", limit)
        entries = index.entries()
        if after is not None:
            entries = entries[entries.index(find(checks.job_id("after", after))) + 1 :]
        found = (job for job in api.select(entries, status) if method is None or job.spec.method.type == method)
        return list(islice(found, limit))

    def cancel(self, job_id: str) -> Job:
        """Stop a job, and wait until it has stopped."""
        return api.stop(job_id)

    def delete(self, job_id: str) -> None:
        """Forget a job that has ended; its folder, with the model, stays where it is.

        Raises:
            InvalidRequest: It has not ended.
        """
        job = api.attach(job_id)
        if not Status(job.status).is_terminal:
            reason = f"it is {job.status}, and only a job that has ended can be deleted."
            raise InvalidRequest([Fault("job_id", job.id, reason, "Stop it first: cancel().")])
        index.remove(job.id)

    def metrics(
        self,
        job_id: str,
        keys: str | Iterable[str] | None = None,
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int = 500,
    ) -> Rows:
        """What each optimizer step of a job measured, as ``Job.metrics`` gives it."""
        return api.attach(job_id).metrics(keys, from_step, to_step, max_points)

    def __getattr__(self, name: str) -> NoReturn:
        if name in not_yet.VERBS:
            not_yet.refuse(f"training_jobs.{name}", not_yet.VERBS[name])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
