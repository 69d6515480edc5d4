"""The rows that a job would learn from: how many, and whether they fit the method. Looked at once, not per change."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher.data.check import FIRST_ROWS, WHOLE_FILE_BYTES
from kernel_launcher.data.rows.source import HubId, data_size, read_rows, resolve
from kernel_launcher.data.training.lengths import padding_share
from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.preflight.dataset import check_dataset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_launcher.data.training.lengths import Lengths
    from kernel_launcher.planner import Plan
    from kernel_launcher.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Rows:
    """What is known of the rows.

    Attributes:
        count: How many there are; None where that is only known when the job reads them.
        faults: Why they cannot be trained on.
        lengths: Of the first of them, in tokens; None without a tokenizer, and until they are looked at.
        are_counted: Whether their tokens are being counted.
    """

    count: int | None = None
    faults: tuple[Fault, ...] = ()
    lengths: Lengths | None = None
    are_counted: bool = False


class RowsOf:
    """Checks rows, and again only when they, the columns or the method are others.

    Args:
        variables: The notebook's, by name.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self._seen: tuple[object, ...] = ()
        self._found = Rows()

    def __call__(self, spec: JobSpec, name: str) -> Rows:
        """The rows of a variable, or those that the spec names; of none nothing is known."""
        if name and name not in self._variables:
            return Rows(
                faults=(Fault("dataset.id", name, "there is no such variable.", "Run the cell that makes it."),)
            )
        rows = self._variables.get(name) if name else None
        method = spec.method
        seen = (spec.dataset, spec.model, method.type, method.chat_template, method.allow, stamp(spec, rows))
        if seen != self._seen:
            self._seen, self._found = seen, _check(spec, rows)
        return self._found


def names(variables: Mapping[str, Any]) -> list[str]:
    """The variables that hold rows."""
    return sorted(name for name, value in variables.items() if not name.startswith("_") and is_rows(value))


def is_rows(value: object) -> bool:
    """Whether a value is a list of dicts, a DataFrame, a Dataset or a Table; none of their packages is imported."""
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], dict)
    kind = type(value)
    place = (kind.__module__.partition(".")[0], kind.__name__)
    return place in (("pandas", "DataFrame"), ("datasets", "Dataset"), ("pyarrow", "Table"))


def first_rows(rows: Any) -> Any:
    """The rows of the notebook that are looked at; all of a list of a million would be written down first."""
    if isinstance(rows, list):
        return rows[:FIRST_ROWS]
    for method, arguments in (("head", (FIRST_ROWS,)), ("slice", (0, FIRST_ROWS))):
        if hasattr(rows, method):
            return getattr(rows, method)(*arguments)
    return rows.select(range(min(FIRST_ROWS, len(rows))))


def stamp(spec: JobSpec, rows: object | None) -> tuple[object, ...]:
    """Tells rows, or the file that a spec names, from what they were before."""
    if rows is not None:
        return id(rows), _size(rows)
    try:
        found = Path(spec.dataset.id or "").stat()
    except (OSError, ValueError):
        return ()
    return found.st_size, found.st_mtime_ns


def total_steps(plan: Plan, rows: int | None) -> int | None:
    """Optimizer steps of the whole run, as transformers counts them: a last batch that is not full is one, too."""
    method = plan.method
    if method.max_steps is not None:
        return method.max_steps
    if not rows or method.num_epochs is None:
        return None
    assert isinstance(method.micro_batch_size, int), "a plan decides it"
    batches = ceil(rows / (method.micro_batch_size * plan.world_size))
    return ceil(method.num_epochs * ceil(batches / (method.gradient_accumulation_steps or 1)))


def in_tokens(plan: Plan, lengths: Lengths) -> str:
    """How long rows are, how many are longer than is allowed, and what share of a micro batch is padding."""
    method = plan.method
    limit = (method.max_length if method.type == "dpo" else method.max_seq_length) or lengths.longest
    assert isinstance(method.micro_batch_size, int), "a plan decides it"
    widths = lengths.capped(limit)
    padding = padding_share(widths, widths.total, method.micro_batch_size)
    seen = f"tokens a row p50 {lengths.percentile(50):,}, p95 {lengths.percentile(95):,}, most {lengths.longest:,}"
    return f"{seen}; {lengths.above(limit):,} of {len(lengths):,} too long; {padding:.0%} padding"


def _check(spec: JobSpec, rows: object | None) -> Rows:
    if rows is None and spec.dataset.id is None:
        return Rows()
    here = Path.cwd()
    _, _, faults = check_dataset(spec, None if rows is None else first_rows(rows), here)
    if faults:
        return Rows(faults=tuple(faults))
    return Rows(_size(rows) if rows is not None else _count(spec.dataset.id or "", here))


def _count(given: str, here: Path) -> int | None:
    source = resolve(given, here)
    if isinstance(source, HubId) or data_size(source) > WHOLE_FILE_BYTES:
        return None
    try:
        return sum(1 for _ in read_rows(source))
    except InvalidRequest:  # past the rows that were checked; the job says so
        return None


def _size(rows: object) -> int | None:
    return len(rows) if hasattr(rows, "__len__") else None
