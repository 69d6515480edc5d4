"""Rows that are too long, where a job refuses them: looked for in the cell, if the data is small enough."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from kernel_launcher.data.chat.templates import read_template
from kernel_launcher.data.chat.tokenizer import open_codec
from kernel_launcher.data.check import TOKENISED_BYTES
from kernel_launcher.data.rows.columns import Columns
from kernel_launcher.data.rows.source import data_size, read_rows
from kernel_launcher.data.training.prepare import prepare
from kernel_launcher.errors import InvalidRequest
from kernel_launcher.facts.hub import cached_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernel_launcher.data.chat.codec import Codec
    from kernel_launcher.data.rows.readers import Row
    from kernel_launcher.data.rows.snapshot import Snapshot
    from kernel_launcher.errors import Fault
    from kernel_launcher.preflight.dataset import DataRef
    from kernel_launcher.spec import JobSpec
    from kernel_launcher.spec.fields import Method


def length_faults(spec: JobSpec, method: Method, data: DataRef | None, snapshot: Snapshot | None) -> list[Fault]:
    """What is wrong with the rows once they are tokens, for a job with ``too_long = "refuse"``.

    Nothing is said of what only the job can look at: large data, data on the hub, and a tokenizer that is not here or
    needs transformers.

    Args:
        spec: What was asked.
        method: The hyperparameters as planned.
        data: What the job learns from.
        snapshot: The rows that came from the notebook, if they did.
    """
    rows = _rows(data, snapshot) if method.too_long == "refuse" else None
    codec = _codec(spec) if rows is not None else None
    if rows is None or codec is None:
        return []
    source = "the rows given" if snapshot else str(data.path if data else "")
    try:
        with TemporaryDirectory() as folder:
            prepare(rows, Columns.of(spec.dataset), method, codec, write=Path(folder, "rows.arrow"), source=source)
    except InvalidRequest as error:
        return list(error.faults)
    return []


def _rows(data: DataRef | None, snapshot: Snapshot | None) -> Iterable[tuple[int, Row]] | None:
    if snapshot is not None:
        return snapshot.rows() if snapshot.size <= TOKENISED_BYTES else None
    path = Path(data.path) if data is not None and data.path is not None else None
    return read_rows(path) if path is not None and data_size(path) <= TOKENISED_BYTES else None


def _codec(spec: JobSpec) -> Codec | None:
    base, template = spec.model.base or "", spec.method.chat_template
    folder = Path(base) if Path(base).is_dir() else cached_snapshot(base, spec.model.revision)
    if folder is None:
        return None
    try:
        return open_codec(folder, None if template is None else read_template(template))
    except (ImportError, InvalidRequest):
        return None
