"""The rows of a job on their way into the trainer."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.data.snapshot import file_digest, source_digest
from kernel_launcher.protocol.paths import RunDir
from kernel_launcher.spec.fields import Dataset as DatasetSection
from kernel_launcher.spec.fields import Method
from kernel_launcher.worker.assignment import DataOrigin
from kernel_launcher.worker.errors import DataError, ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_launcher.worker.assignment import Assignment
    from tests.conftest import Sample

pytestmark = pytest.mark.torch


class Listener:
    """Stands for the reporter."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.lines: list[str] = []
        self.warn = self.warnings.append
        self.say = self.lines.append


@pytest.fixture(scope="module")
def tokenizer(sample: Sample) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(sample.tiny)


def job(root: Path, *, path: Path | None = None, hub_id: str | None = None, max_length: int = 64) -> Assignment:
    """As much of an assignment as the rows need."""
    run = RunDir(root / "run")
    run.create()
    return SimpleNamespace(  # type: ignore[return-value]
        run=run,
        rank=SimpleNamespace(attempt=0),
        spec=SimpleNamespace(dataset=DatasetSection()),
        plan=SimpleNamespace(method=Method(max_seq_length=max_length)),
        data=DataOrigin(
            kind="file" if path else "hub",
            path=str(path) if path else None,
            id=hub_id,
            digest=source_digest(path) if path else "",
        ),
    )


def prepare(assignment: Assignment, tokenizer: Any) -> Listener:
    from kernel_launcher.worker.rows import prepare_rows

    listener = Listener()
    prepare_rows(assignment, tokenizer, listener)  # type: ignore[arg-type]
    return listener


def chat(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def test_rows_that_lose_something_are_counted_in_a_warning(tmp_path: Path, tokenizer: Any) -> None:
    """Cut, and left out because the cut took the whole answer; the others are trained as they are."""
    rows = [chat("a", "b"), chat("a", "long " * 100), chat("long " * 100, "b")]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assignment = job(tmp_path, path=path)
    cut, left_out = prepare(assignment, tokenizer).warnings
    assert cut.startswith("1 of 3 rows are longer than max_seq_length = 64")
    assert left_out.startswith("1 of 3 rows are left out")
    assert "(first: 3)" in left_out

    from kernel_launcher.worker.rows import open_rows

    assert 2 == len(open_rows(assignment, vocabulary=49152))


def test_a_tokenizer_that_knows_more_than_the_model_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    """On a GPU it would be an assertion in a kernel, somewhere in the first step."""
    from kernel_launcher.worker.rows import open_rows

    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(chat("a", "b")))
    assignment = job(tmp_path, path=path)
    prepare(assignment, tokenizer)
    with pytest.raises(ModelLoadError, match=r"wrote token \d+, and the model knows 10 tokens only"):
        open_rows(assignment, vocabulary=10)


@pytest.fixture
def rows_file(tmp_path: Path) -> Path:
    """Two rows."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(chat("a", answer)) + "\n" for answer in "bc"))
    return path


def overwrite(path: Path) -> None:
    """Other rows of the same size."""
    path.write_text(path.read_text().replace('"a"', '"z"'))


@pytest.mark.parametrize("kind", ["file", "snapshot"])
def test_rows_that_the_cell_did_not_see_are_never_trained_on(
    kind: Any, tmp_path: Path, tokenizer: Any, rows_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overwritten before the job reads them, or while it does: nothing is prepared. Touched is not changed."""
    from kernel_launcher.worker import rows

    assignment = job(tmp_path, path=rows_file)
    assignment.data = DataOrigin(kind=kind, path=str(rows_file), id=None, digest=file_digest(rows_file))  # type: ignore[misc]
    rows_file.touch()
    prepare(assignment, tokenizer)
    prepared = assignment.run.data / "train.arrow"
    prepared.unlink()

    def overtaken(path: Path) -> Any:
        reader = read_rows(path)
        yield next(reader)
        overwrite(path)
        yield from reader

    read_rows = rows.read_rows
    monkeypatch.setattr(rows, "read_rows", overtaken)
    for _ in ("while", "before"):
        with pytest.raises(DataError, match=r"rows.jsonl: the file changed after the cell was run"):
            prepare(assignment, tokenizer)
        assert [] == list(assignment.run.data.iterdir())


def test_a_file_that_went_away_is_a_fault_of_the_data(tmp_path: Path, tokenizer: Any, rows_file: Path) -> None:
    """With what to do about it."""
    assignment = job(tmp_path, path=rows_file)
    rows_file.unlink()
    with pytest.raises(DataError, match=r"No such file or directory\.\n  Put it back"):
        prepare(assignment, tokenizer)
