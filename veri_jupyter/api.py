"""The functions behind every magic: plan, train, find, stop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_launcher.errors import Fault, InvalidRequest, VeriError
from kernel_launcher.launcher import client
from kernel_launcher.protocol import index
from kernel_launcher.protocol.states import Status
from kernel_launcher.secrets import redact, shown
from kernel_launcher.spec.read import parse_folder, parse_gpus
from veri_jupyter import checks, not_yet, start
from veri_jupyter.environment import DISPLAYS, shell
from veri_jupyter.job import Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kernel_launcher.planner import Plan
    from kernel_launcher.protocol.index import Entry
    from veri_jupyter.explorer.shown import Explorer
    from veri_jupyter.monitor.compare import Comparison

Gpus = int | str | list[int] | tuple[int, ...] | None


class _Default(str):
    """A default that the spec may overrule; the same text given by the caller may not be."""

    __slots__ = ()


_METHOD, _GPU_TYPE = _Default("sft_text"), _Default("auto")


class Sample(NamedTuple):
    """Where the parts of the sample are."""

    smollm2: Path
    tiny: Path
    sft: Path
    heldout: Path
    dpo: Path


def plan(
    spec_or_model: Mapping[str, Any] | str | Path,
    data: object | None = None,
    /,
    *,
    method: str = _METHOD,
    gpu_type: str = _GPU_TYPE,
    gpus: Gpus = None,
    trace: object = False,
    hub: bool = False,
    **hyperparameters: Any,
) -> Plan:
    """How a job would run: every open setting decided, with reasons, memory and warnings. Starts nothing.

    Args:
        spec_or_model: A dict, a TOML file or its text, or a base model's folder or hub id.
        data: A file, a hub id, a list of dicts, a DataFrame or a Dataset; a plan can do without.
        method: Training method.
        gpu_type: Kind of GPU, also one that is not here.
        gpus: How many, or which ones.
        trace: Measure a step with torch's tracker, too: seconds to minutes, ten at most, and kept for the next time.
            That of a ``resolved_parallelism`` is taken and dropped.
        hub: Ask the hub about a model that is not here, a second at most.
        hyperparameters: Any other setting, such as ``lora_rank=8``.

    Raises:
        InvalidRequest: With everything that is wrong.
        VeriError: The model cannot be measured (``trace_failed``).
    """
    measured = not isinstance(trace, list | tuple) and checks.flag("trace", trace)
    settings = hyperparameters | _chosen(method, gpu_type, gpus)
    return start.prepare(spec_or_model, data, settings, to_run=False, ask_hub=hub, trace=measured).plan


def train(
    spec_or_model: Mapping[str, Any] | str | Path,
    data: object | None = None,
    /,
    *,
    method: str = _METHOD,
    gpu_type: str = _GPU_TYPE,
    gpus: Gpus = None,
    name: str | None = None,
    run_dir: str | Path | None = None,
    again: bool = False,
    after: str | None = None,
    **hyperparameters: Any,
) -> Job:
    """Start a job in the background and return at once; the same job, if it runs or is done, is found again.

    Args:
        spec_or_model: A dict, a TOML file or its text, or a base model's folder or hub id.
        data: A file, a hub id, a list of dicts, a DataFrame or a Dataset.
        method: Training method.
        gpu_type: Kind of GPU; what this machine has, if it is ``auto``.
        gpus: How many, or which ones: ``2``, ``[0, 2]``, ``"0-3"``.
        name: Of the job and its folder.
        run_dir: The job's folder (default: ``./runs/<name>/``).
        again: Start anew although the same job runs or is done.
        after: Not in this release.
        hyperparameters: Any other setting, such as ``lora_rank=8``.

    Raises:
        InvalidRequest: With everything that is wrong; nothing was started.
        LaunchFailed: The launcher did not come up.
    """
    refuse_after(after)
    folder = None if run_dir is None else parse_folder("run_dir", run_dir)
    again = checks.flag("again", again)
    settings = hyperparameters | _chosen(method, gpu_type, gpus) | {"job.name": name}
    return start.launch(start.prepare(spec_or_model, data, settings), run_dir=folder, again=again)


def explore(
    spec_or_model: Mapping[str, Any] | str | Path | None = None,
    data: object | None = None,
    /,
    *,
    display: str = "auto",
    **settings: Any,
) -> Explorer:
    """A form for a job with its plan beside it, made anew with every change; elsewhere the card of its plan.

    Args:
        spec_or_model: What to begin with: as for ``plan``, or the text of a cell; without it nothing is filled in.
        data: A file, a hub id, a list of dicts, a DataFrame or a Dataset.
        display: ``widget`` is the form, ``static`` the card; ``auto`` is the form where somebody is known to look.
        settings: Any setting, such as ``gpus=4`` or ``lora_rank=8``.

    Raises:
        InvalidRequest: What it begins with cannot be read. What is wrong with the job is said beside the setting.
    """
    from veri_jupyter.explorer.begin import begin
    from veri_jupyter.explorer.shown import Explorer

    checks.choice("display", display, DISPLAYS)
    given = {f"resources.{key}": value for key, value in parse_gpus(settings.pop("gpus", None)).items()} | settings
    state, variables = begin(spec_or_model, data, given, getattr(shell(), "user_ns", {}))
    return Explorer(state, variables, display)


def jobs(status: str | None = None, limit: int = 20) -> list[Job]:
    """The newest jobs of this user, newest first; only those of one status, if it is given.

    Raises:
        InvalidRequest: There is no such status, or no such number of jobs.
    """
    return list(islice(select(index.entries(), status), checks.whole("limit", limit)))


def attach(job_id: str) -> Job:
    """The job with this id (or its beginning), name or run folder; ``last`` is the newest.

    Raises:
        JobNotFound: None, or more than one, fits.
    """
    return Job(client.find(checks.job_id("job_id", job_id)))


def compare(*jobs: Job | str) -> Comparison:
    """Two or more jobs, or their ids, on one chart, with the settings that differ; as of now.

    Raises:
        InvalidRequest: There are fewer than two.
        JobNotFound: None, or more than one, fits an id.
    """
    from veri_jupyter.monitor.compare import Comparison

    if len(jobs) < 2:
        raise InvalidRequest([Fault("jobs", str(len(jobs)), "are too few to compare.", "Give two or more.")])
    found = [job if isinstance(job, Job) else attach(job) for job in jobs]
    return Comparison([job.moment for job in found])


def stop(job_id: str, *, now: bool = False) -> Job:
    """Stop a job, and wait until it has stopped; ``now`` gives the ranks no time to end by themselves.

    Raises:
        JobNotFound: None, or more than one, fits.
    """
    job = attach(job_id)
    job.stop(now=now)
    return job


def sample(directory: str | Path) -> Sample:
    """Write a small model, a tiny one, and data to try them on; what is there already stays. Needs no network.

    Raises:
        VeriError: A package is missing, or the folder cannot be written.
    """
    folder = os.fspath(parse_folder("directory", directory))
    command = [sys.executable, "-P", "-m", "kernel_launcher.samples", folder, "--json"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        last = ""
        try:
            for last in process.stderr:
                sys.stderr.write(redact(last))
            answer = process.stdout.read()
        except KeyboardInterrupt:
            process.kill()
            raise
    if process.returncode == 0:
        return Sample(**{name: Path(path) for name, path in json.loads(answer).items()})
    try:
        error = json.loads(answer)["error"]
    except ValueError:
        error = {"code": "sample_failed", "message": redact(last.strip()), "hint": ""}
    raise VeriError(error["code"], error["message"], error["hint"])


def select(entries: Iterable[Entry], status: str | None) -> Iterator[Job]:
    """The jobs of these entries, or those of one status.

    Raises:
        InvalidRequest: There is no such status.
    """
    if status is not None and status not in list(Status):
        known = ", ".join(Status)
        raise InvalidRequest([Fault("status", shown("status", status), "no such status.", f"Known are: {known}.")])
    return (job for job in map(Job, entries) if status is None or job.status == status)


def refuse_after(after: str | None) -> None:
    """Refuse to queue a job behind another.

    Raises:
        VeriError: There is something to wait for.
    """
    if after is not None:
        not_yet.refuse("Starting a job after another", "Wait for the other with Job.wait(), then start this one.")


def _chosen(method: str, gpu_type: str, gpus: Gpus) -> dict[str, Any]:
    """The settings that the caller gave, without the defaults that a spec may overrule."""
    named = {"method.type": method, "resources.gpu_type": gpu_type}
    given = {key: value for key, value in named.items() if not isinstance(value, _Default)}
    return given | {f"resources.{key}": value for key, value in parse_gpus(gpus).items()}
