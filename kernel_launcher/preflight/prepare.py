"""From a spec to a job that may start: everything checked that can be, the plan made, all faults at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import InvalidRequest
from kernel_launcher.planner import Plan, make_plan
from kernel_launcher.preflight.dataset import DataRef, check_dataset
from kernel_launcher.preflight.environment import environment_faults
from kernel_launcher.preflight.kernels import kernel_faults
from kernel_launcher.preflight.lengths import length_faults
from kernel_launcher.preflight.model import check_model, model_stamp, template_faults
from kernel_launcher.preflight.resources import check_resources
from kernel_launcher.preflight.trace import trace as measure
from kernel_launcher.protocol.files import write_json
from kernel_launcher.secrets import redact
from kernel_launcher.spec.refusals import run_refusals

if TYPE_CHECKING:
    from kernel_launcher.data.rows.snapshot import Snapshot
    from kernel_launcher.protocol.paths import RunDir
    from kernel_launcher.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A job that was checked and planned.

    Attributes:
        spec: What was asked.
        plan: What was decided.
        data: What it learns from; None where a plan was asked for without data.
        model_stamp: Tells this state of a local base model from another.
        snapshot: The rows that came from the notebook, if they did.
    """

    spec: JobSpec
    plan: Plan
    data: DataRef | None
    model_stamp: str = ""
    snapshot: Snapshot | None = field(default=None, repr=False)

    @property
    def fingerprint(self) -> str:
        """Two jobs with the same one do the same work."""
        return self.spec.fingerprint(f"{self.data.digest if self.data else ''}|{self.model_stamp}")

    @property
    def default_name(self) -> str:
        """What the job is called if nobody names it: after its base model."""
        name = "".join(
            c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in Path(self.spec.model.base or "").name
        )
        return name.strip("._-")[:64] or "job"

    def write(self, run: RunDir, job: dict[str, Any]) -> None:
        """Write what the launcher and the ranks read.

        Raises:
            OSError: The folder cannot be written.
        """
        assert self.data is not None, "a job to run has data"
        data = self.data
        if self.snapshot is not None:
            self.snapshot.write_to(run.snapshot)
            data = DataRef(kind=data.kind, path=str(run.snapshot), digest=data.digest)
        write_json(run.spec, {"job": job, "spec": self.spec.to_sections(), "data": asdict(data)})
        write_json(run.plan, self.plan.to_json())
        # First in the log, before the launcher has a word.
        run.launcher_log.write_text("".join(f"{line}\n" for line in self.plan.describe()), encoding="utf-8")


def prepare(
    spec: JobSpec,
    rows: object | None = None,
    *,
    base_dir: Path | None = None,
    to_run: bool = True,
    ask_hub: bool = False,
    trace: bool = False,
) -> Prepared:
    """Check a spec against files, data, GPUs and the environment, and plan it.

    Args:
        spec: What was asked.
        rows: Rows from the notebook: a list of dicts, a DataFrame or a Dataset; instead of ``dataset.id``.
        base_dir: What relative paths are relative to (default: the working directory).
        to_run: Whether it is to run here. A plan alone needs neither data nor the GPUs that it is for.
        ask_hub: Ask the hub about a model that is not here, a second at most.
        trace: Measure a step with torch's tracker, too, where there is no fault.

    Raises:
        InvalidRequest: With every fault that was found.
        VeriError: The model cannot be measured (``trace_failed``).
    """
    model, model_faults = check_model(spec, to_run=to_run, ask_hub=ask_hub)
    hardware, resource_faults = check_resources(spec, to_run=to_run)
    faults = [*(run_refusals(spec) if to_run else ()), *model_faults, *resource_faults, *template_faults(spec)]
    faults += kernel_faults(spec, on_cpu=hardware.is_cpu, to_run=to_run)
    if to_run:
        faults += environment_faults(spec.resources.python)
    data, snapshot = None, None
    missing = not to_run and rows is None and _is_missing(spec.dataset.id)
    if to_run or rows is not None or (spec.dataset.id is not None and not missing):
        data, snapshot, data_faults = check_dataset(spec, rows, base_dir or Path.cwd(), to_run=to_run)
        faults += data_faults
    try:
        plan = make_plan(spec, hardware, model)
    except InvalidRequest as error:
        raise InvalidRequest([*faults, *error.faults]) from None
    if missing:
        plan = replace(
            plan, warnings=(*plan.warnings, f"{redact(spec.dataset.id or '')} is not here, so no row was checked.")
        )
    if to_run and not faults:
        faults += length_faults(spec, plan.method, data, snapshot)
    if faults:
        raise InvalidRequest(faults)
    if trace:
        plan = replace(plan, outlook=replace(plan.outlook, traced=measure(spec, plan)))
    return Prepared(spec=spec, plan=plan, data=data, model_stamp=model_stamp(spec), snapshot=snapshot)


def _is_missing(data: str | None) -> bool:
    """Whether data is named by a path, and not there; a plan can do without."""
    try:
        return data is not None and Path(data).is_absolute() and not Path(data).exists()
    except OSError:  # too long a name: that is said when the data is looked at
        return False
