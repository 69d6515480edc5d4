"""From a spec to a job that may start: everything checked that can be, the plan made, all faults at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import InvalidRequest
from kernel_launcher.planner import Plan, make_plan
from kernel_launcher.preflight.dataset import DataRef, check_dataset
from kernel_launcher.preflight.environment import environment_faults
from kernel_launcher.preflight.model import check_model, model_stamp
from kernel_launcher.preflight.resources import check_resources
from kernel_launcher.protocol.files import write_json

if TYPE_CHECKING:
    from kernel_launcher.data.snapshot import Snapshot
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


def prepare(
    spec: JobSpec, rows: object | None = None, *, base_dir: Path | None = None, to_run: bool = True
) -> Prepared:
    """Check a spec against files, data, GPUs and the environment, and plan it.

    Args:
        spec: What was asked.
        rows: Rows from the notebook: a list of dicts, a DataFrame or a Dataset; instead of ``dataset.id``.
        base_dir: What relative paths are relative to (default: the working directory).
        to_run: Whether it is to run here. A plan alone needs neither data nor the GPUs that it is for.

    Raises:
        InvalidRequest: With every fault that was found.
    """
    model, model_faults = check_model(spec)
    hardware, resource_faults = check_resources(spec, to_run=to_run)
    faults = [*model_faults, *resource_faults]
    if to_run:
        faults += environment_faults(spec.resources.python)
    data, snapshot = None, None
    if to_run or rows is not None or spec.dataset.id is not None:
        data, snapshot, data_faults = check_dataset(spec, rows, base_dir or Path.cwd())
        faults += data_faults
    try:
        plan = make_plan(spec, hardware, model)
    except InvalidRequest as error:
        raise InvalidRequest([*faults, *error.faults]) from None
    if faults:
        raise InvalidRequest(faults)
    return Prepared(spec=spec, plan=plan, data=data, model_stamp=model_stamp(spec), snapshot=snapshot)
