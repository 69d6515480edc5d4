"""Whether the data exists and its first rows fit the method; all of them are looked at again in the job."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_launcher.data.chat.templates import templates_in
from kernel_launcher.data.check import check_file, check_rows, rows_to_check, word_linter
from kernel_launcher.data.lint import not_allowed, refuse_errors
from kernel_launcher.data.rows.columns import Columns
from kernel_launcher.data.rows.faults import no_chat_template
from kernel_launcher.data.rows.snapshot import Snapshot, source_digest, take_snapshot
from kernel_launcher.data.rows.source import HubId, resolve
from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.secrets import shown

if TYPE_CHECKING:
    from kernel_launcher.data.check import Report
    from kernel_launcher.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRef:
    """What a job learns from.

    Attributes:
        kind: ``file``, ``hub`` or ``snapshot`` (rows from the notebook, written down).
        path: The file, for ``file`` and ``snapshot``.
        id: The id on the hub, for ``hub``.
        digest: Hash of the rows, or of what names them on the hub.
    """

    kind: str
    path: str | None = None
    id: str | None = None
    digest: str


def check_dataset(
    spec: JobSpec, rows: object | None, base_dir: Path, *, to_run: bool = True
) -> tuple[DataRef | None, Snapshot | None, list[Fault]]:
    """What the job learns from, the notebook's rows written down, and what is wrong.

    Args:
        spec: Names a file or a data set on the hub, and the columns.
        rows: Rows from the notebook, instead.
        base_dir: What a relative path is relative to.
        to_run: Whether they are to be trained on: then the linter's errors are faults. A look at them shows these.
    """
    given = spec.dataset.id
    if rows is not None and given is not None:
        reason = "names a data set, but rows were given too."
        return None, None, [Fault("dataset.id", shown("dataset.id", given), reason, "Give one of them.")]
    if rows is None and given is None:
        fix = 'Name a file, id = "./train.jsonl", or give rows: --data VAR, or the second argument of train().'
        return None, None, [Fault("dataset.id", "", "no data.", fix)]
    columns = Columns.of(spec.dataset)
    try:
        if rows is not None:
            snapshot = take_snapshot(rows)
            limit, linter = rows_to_check(snapshot.size), word_linter(snapshot.size)
            report = check_rows(snapshot.rows(), columns, spec.method.type, limit, "the rows given", linter=linter)
            _check(report, spec, to_run=to_run)
            return DataRef(kind="snapshot", digest=snapshot.sha256), snapshot, _split_faults(spec)
        source = resolve(given or "", base_dir)
        if isinstance(source, HubId):
            named = hashlib.sha256(f"{source}@{spec.dataset.split}".encode()).hexdigest()
            return DataRef(kind="hub", id=source.id, digest=named), None, []
        _check(check_file(source, columns, spec.method.type), spec, to_run=to_run)
        return DataRef(kind="file", path=str(source), digest=source_digest(source)), None, _split_faults(spec)
    except InvalidRequest as error:
        return None, None, list(error.faults)


def _check(report: Report, spec: JobSpec, *, to_run: bool) -> None:
    report.raise_if_faulty()
    if to_run:
        refuse_errors(not_allowed(report.findings, spec.method.allow), report.source)
    if report.chats and _lacks_chat_template(spec):
        raise no_chat_template(report.source)


def _lacks_chat_template(spec: JobSpec) -> bool:
    if spec.method.chat_template is not None:
        return False
    base = Path(spec.model.base or "")
    try:
        # Code that a model ships may bring a template that no file names; a hub id is looked at in the job.
        return not spec.model.trust_remote_code and base.is_dir() and not templates_in(base)
    except OSError:  # too long a name, or a folder that may not be looked into: a fault of the model, told as such
        return False


def _split_faults(spec: JobSpec) -> list[Fault]:
    split = spec.dataset.split
    if split == "train":
        return []
    reason = "only a data set on the hub has splits; these rows would all be trained on."
    return [
        Fault(
            "dataset.split",
            shown("dataset.split", split),
            reason,
            "Leave it out, and give a file of the rows that you mean.",
        )
    ]
