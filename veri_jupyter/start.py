"""From what somebody wrote to a job that is checked and planned, and from there to one that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher import preflight
from kernel_launcher.errors import InvalidRequest, LaunchFailed
from kernel_launcher.launcher import client
from kernel_launcher.protocol import index
from kernel_launcher.protocol.files import now
from kernel_launcher.spec import read_spec
from veri_jupyter.job import Detached, Job, detaching
from veri_jupyter.monitor.show import tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_launcher.preflight import Prepared
    from kernel_launcher.spec import JobSpec

_LOG_LINES = 20


def prepare(
    source: Mapping[str, Any] | str | Path | None,
    data: object | None,
    settings: Mapping[str, Any],
    *,
    overrides: Mapping[str, Any] | None = None,
    to_run: bool = True,
    ask_hub: bool = False,
    trace: bool = False,
) -> Prepared:
    """Read, check and plan a job; ``overrides`` beat ``settings``, which beat ``source``.

    Raises:
        InvalidRequest: With everything that is wrong.
    """
    spec, rows = read_job(source, data, settings, overrides)
    return preflight.prepare(spec, rows, to_run=to_run, ask_hub=ask_hub, trace=trace)


def read_job(
    source: Mapping[str, Any] | str | Path | None,
    data: object | None,
    settings: Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
) -> tuple[JobSpec, object | None]:
    """The spec of a job, and its rows where they are in a variable.

    Raises:
        InvalidRequest: With every fault that the spec alone shows.
    """
    # Dotted, like those of _chosen: a setting that is also given by its bare name is then a conflict, not lost.
    named = {"dataset.id": str(data)} if isinstance(data, str | Path) else {}
    return read_spec(source, settings={**settings, **named}, overrides=overrides), None if named else data


def launch(prepared: Prepared, *, run_dir: Path | None = None, again: bool = False, quiet: bool = False) -> Job:
    """Start what was prepared, and in IPython say what was decided and where it runs, if not ``quiet``.

    Raises:
        InvalidRequest: The name or the folder is taken.
        LaunchFailed: The launcher did not come up.
        KeyboardInterrupt: Somebody interrupted; says whether a job was started, and how to see and stop it.
    """
    if not quiet:
        tell(prepared.plan.describe())
    match _started(prepared, run_dir, again=again):
        case client.Launched(entry):
            said = []
        case client.Reused(entry, view):
            state = "is done" if view.status.is_terminal else "runs"
            said = [f"This job {state} already; nothing was started. To start anew: --again (again=True)"]
        case client.Refused(fault):
            raise InvalidRequest([fault])
        case client.Failed(message, log_tail):
            lines = "\n".join(f"  {line}" for line in log_tail[-_LOG_LINES:])
            raise LaunchFailed(f"{message}; the end of its log:\n{lines}", log_tail="\n".join(log_tail))
    with detaching(entry.id):
        if not quiet:
            tell([f"run folder: {entry.root}", *said])
        return Job(entry)


def _started(
    prepared: Prepared, run_dir: Path | None, *, again: bool
) -> client.Launched | client.Reused | client.Refused | client.Failed:
    began = now()
    try:
        return client.start(prepared, base_dir=Path.cwd(), run_dir=run_dir, again=again)
    except KeyboardInterrupt:
        entry = index.added(prepared.fingerprint, since=began)
        if entry is None:
            raise
        raise Detached(entry.id, "the start was interrupted after the launcher was called; the job goes on") from None
