"""Measuring a planned step with torch's tracker: in a process of its own, as it needs torch, and once a workload."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher import __version__
from kernel_launcher.errors import Fault, InvalidRequest, VeriError
from kernel_launcher.facts.hub import cached_snapshot
from kernel_launcher.facts.model import BrokenModelError, read_config
from kernel_launcher.planner.shape import Unknown
from kernel_launcher.planner.traced import Traced
from kernel_launcher.preflight.environment import environment_faults, versions
from kernel_launcher.protocol.files import read_json, write_json
from kernel_launcher.protocol.index import home
from kernel_launcher.secrets import redact

if TYPE_CHECKING:
    from kernel_launcher.planner import Plan
    from kernel_launcher.planner.workload import Workload
    from kernel_launcher.spec import JobSpec
    from kernel_launcher.spec.fields import Method

MOST_SECONDS = 600
LEAVE_OUT = "Leave trace out."


def trace(spec: JobSpec, plan: Plan) -> Traced:
    """What a step of this plan holds, from the cache or measured now (seconds to minutes; ten at most).

    Raises:
        InvalidRequest: The environment lacks torch, the model's config.json is not here, or the tracker does not know
            what was asked.
        VeriError: The model cannot be built from its config, or that took too long (``trace_failed``).
    """
    request, cache = _question(spec, plan)
    return _cached(cache) or _measured(request, spec.resources.python, cache)


def known(spec: JobSpec, plan: Plan) -> Traced | None:
    """What a step of this plan holds, from the cache; None where it can be measured, and was not.

    Raises:
        InvalidRequest: As by ``trace``.
    """
    _, cache = _question(spec, plan)
    return _cached(cache)


def _question(spec: JobSpec, plan: Plan) -> tuple[dict[str, Any], Path]:
    """What the tracker is asked, and where the answer is kept."""
    workload = plan.outlook.workload
    if isinstance(workload, Unknown):
        raise _refused(f"{workload.reason}; the tracker's step is no other.", LEAVE_OUT)
    if reason := _unlike(workload, plan.method):
        raise _refused(reason, LEAVE_OUT)
    if faults := list(environment_faults(spec.resources.python)):
        raise InvalidRequest(faults)
    request = {"config": _config(spec), "run": _run(workload)}
    return request, _place(request, spec.resources.python)


def _unlike(workload: Workload, method: Method) -> str:
    """What the tracker's step does not have of a job; empty if it has everything."""
    if workload.lora is not None and workload.lora.four_bit:
        return "the tracker cannot build weights of 4 bits."
    if method.use_liger:
        return "the tracker cannot run Liger's kernels (use_liger)."
    if workload.cpu_offload:
        return "the tracker does not tell host memory from a GPU's (cpu_offload)."
    return ""


def _config(spec: JobSpec) -> dict[str, Any]:
    base = spec.model.base or ""
    folder = Path(base) if Path(base).is_dir() else cached_snapshot(base, spec.model.revision)
    if folder is None:
        reason = f"the config.json of {redact(base)} is not here, and the layers are built from it."
        raise _refused(reason, "Download the model first, or name its folder.")
    try:
        return read_config(folder)
    except BrokenModelError as error:
        raise _refused(f"{error}.", "Copy or download it again.") from None


def _run(workload: Workload) -> dict[str, Any]:
    """The tracker's words for a workload; see ``kernel_launcher/tracker/run.py``."""
    lora = workload.lora
    several = "reduced" if workload.sync_each_batch else "unreduced"
    return {
        "micro_batch_size": workload.micro_batch_size,
        "seq_length": workload.length,
        "world_size": workload.world_size,
        "zero_stage": workload.zero_stage,
        "precision": workload.precision,
        "gradient_checkpointing": workload.recompute,
        # The stochastic one holds what the fused one does, and a chunk that is the planner's to add.
        "optimizer": "foreach" if workload.optimizer == "foreach" else "fused",
        "method": "dpo" if workload.method == "dpo" else "sft",
        "lora": lora and {"rank": lora.rank, "targets": list(lora.targets), "dropout": lora.dropout},
        "loss": "fused" if workload.loss == "fused" else "hf",
        "mask": workload.masks,
        "units": workload.units,
        "accumulation": "none" if workload.accumulation_steps == 1 else several,
    }


def _place(request: dict[str, Any], python: str | None) -> Path:
    """Where the answer is kept: another one for every model, workload and set of packages."""
    asked = {**request, "versions": versions(python), "kernel_launcher": __version__}
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    return home() / "cache" / "traces" / f"{digest[:32]}.json"


def _cached(path: Path) -> Traced | None:
    try:
        return Traced.from_json(read_json(path) or {})
    except (ValueError, LookupError, TypeError):  # not there or not whole: measured again
        return None


def _measured(request: dict[str, Any], python: str | None, cache: Path) -> Traced:
    answer = _ask(request, python or sys.executable)
    if "error" in answer:
        message = f"The layers cannot be measured: the model cannot be run from its config: {answer['error']}"
        raise VeriError("trace_failed", message, LEAVE_OUT)
    with suppress(OSError):  # without a cache it is measured again next time
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_json(cache, answer)
    return Traced.from_json(answer)


def _ask(request: dict[str, Any], python: str) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [python, "-P", "-m", "kernel_launcher.tracker"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        message = f"The layers were not measured within {MOST_SECONDS} seconds."
        raise VeriError("trace_failed", message, "Shorter rows are faster to measure.") from None
    except OSError as error:
        raise VeriError("trace_failed", f"{python} does not run: {error.strerror or error}.") from None
    except ValueError:
        said = done.stderr.strip().splitlines()
        why = said[-1] if said else f"exit code {done.returncode}"
        raise VeriError("trace_failed", f"The process that measures ended early: {why}", LEAVE_OUT) from None
    return answer


def _refused(reason: str, fix: str) -> InvalidRequest:
    return InvalidRequest([Fault("trace", "True", reason, fix)])
