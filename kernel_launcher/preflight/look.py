"""A look at the data of a job as its model would learn from it, without torch, before anything starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_launcher.data.chat.tokenizer import open_codec
from kernel_launcher.data.lint import HeldOut, ModelTokens
from kernel_launcher.data.rows.columns import Columns
from kernel_launcher.data.rows.faults import RowFaults, refused, refused_rows
from kernel_launcher.data.rows.formats import RowReader
from kernel_launcher.data.rows.source import HubId, read_rows, resolve
from kernel_launcher.data.show.look import Asked, Look
from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.facts.hub import cached_snapshot
from kernel_launcher.preflight.prepare import prepare
from kernel_launcher.secrets import redact, shown

if TYPE_CHECKING:
    from kernel_launcher.preflight.prepare import Prepared
    from kernel_launcher.spec import JobSpec


def look_at(spec: JobSpec, rows: object | None = None, heldout: str | Path | None = None) -> Look:
    """Read and tokenise the rows that a job would learn from.

    Args:
        spec: What was asked: model, data, and what decides about tokens.
        rows: Rows from the notebook, instead of ``dataset.id``.
        heldout: A file of rows that are held out; those of them that are also trained on are found.

    Raises:
        InvalidRequest: With every fault that was found; also where the tokenizer or the rows are not on this machine.
    """
    prepared = prepare(spec, rows, to_run=False)
    folder = _folder(spec)
    asked = Asked(
        source=_source(prepared),
        model=redact(spec.model.base or ""),
        columns=Columns.of(spec.dataset),
        method=prepared.plan.method,
        codec=open_codec(folder, spec.method.chat_template),
        tokens=ModelTokens.of(folder),
        held_out=None if heldout is None else _held_out(heldout, spec),
    )
    if prepared.snapshot is not None:
        return Look(prepared.snapshot.rows(), asked)
    return Look(read_rows(_file(spec)), asked)


def _held_out(heldout: str | Path, spec: JobSpec) -> HeldOut:
    reader = RowReader(Columns.of(spec.dataset), spec.method.type)
    try:
        path = _local(str(heldout), "Give a file.")
        faults = RowFaults(reader.needed)
        held_out = HeldOut.of(example for _, _, example in reader.examples(read_rows(path), faults))
        # A row that cannot be read cannot be trained on either; a file of them is another file than was meant.
        if not held_out.rows:
            raise refused_rows(str(path), faults.count, faults.first, faults.count)
        return held_out
    except InvalidRequest as error:
        raise InvalidRequest([replace(fault, key="heldout") for fault in error.faults]) from None


def _source(prepared: Prepared) -> str:
    return "the rows given" if prepared.snapshot is not None else redact(prepared.spec.dataset.id or "")


def _file(spec: JobSpec) -> Path:
    given = spec.dataset.id
    if given is None:
        fix = 'Name a file, id = "./train.jsonl", or give rows.'
        raise InvalidRequest([Fault("dataset.id", "", "no data.", fix)])
    return _local(given, f'Give them: rows = datasets.load_dataset("{given}", split="{spec.dataset.split}").')


def _local(given: str, instead: str) -> Path:
    source = resolve(given, Path.cwd())
    if isinstance(source, HubId):
        reason = "its rows are on the hub, and looking at them downloads nothing."
        raise refused(reason, instead, given, "invalid_request")
    return source


def _folder(spec: JobSpec) -> Path:
    base = spec.model.base or ""
    if Path(base).is_dir():
        return Path(base)
    folder = cached_snapshot(base, spec.model.revision)
    if folder is None:
        reason = "its tokenizer is not on this machine."
        fix = f"Download the model first (hf download {redact(base)}), or name its folder."
        raise InvalidRequest([Fault("model.base", shown("model.base", base), reason, fix)])
    return folder
