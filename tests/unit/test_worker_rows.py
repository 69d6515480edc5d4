"""The rows of a job on their way into the trainer."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.data.lint import ModelTokens
from kernel_launcher.data.rows.snapshot import file_digest, source_digest
from kernel_launcher.data.training.tally import read_lost
from kernel_launcher.errors import InvalidRequest
from kernel_launcher.protocol.fold import DATA_FIELDS
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
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.warn = self.warnings.append
        self.say = self.lines.append

    def put(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))


@pytest.fixture(scope="module")
def tokenizer(sample: Sample) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(sample.tiny)


def job(root: Path, *, path: Path | None = None, hub_id: str | None = None, **settings: Any) -> Assignment:
    """As much of an assignment as the rows need."""
    run = RunDir(root / "run")
    run.create()
    return SimpleNamespace(  # type: ignore[return-value]
        run=run,
        rank=SimpleNamespace(attempt=0),
        spec=SimpleNamespace(dataset=DatasetSection()),
        plan=SimpleNamespace(
            method=Method(**({"max_seq_length": 64, "micro_batch_size": 2} | settings)),
            peak_of_rows=lambda longest: {"length": longest},
        ),
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
    prepare_rows(assignment, tokenizer, ModelTokens(), listener)  # type: ignore[arg-type]
    return listener


def chat(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def test_rows_that_lose_something_are_counted_in_a_warning(tmp_path: Path, tokenizer: Any) -> None:
    """Cut, and left out because the cut took the whole answer; the others are trained as they are."""
    rows = [chat("a", "b"), chat("a", "so" + " long" * 100), chat("long " * 100, "b")]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assignment = job(tmp_path, path=path)
    cut, left_out = prepare(assignment, tokenizer).warnings
    assert (
        "1 of 3 rows are longer than max_seq_length = 64 tokens and lost a part (the longest has 134); "
        "1 of them lost a part of an answer."
    ) == cut
    assert "1 of 3 rows are left out: 1 cut before the answer (row 3)." == left_out
    assert [2, 3] == [lost.row for lost in read_lost(assignment.run.lost_rows)]

    from kernel_launcher.worker.rows import open_rows

    assert 2 == len(open_rows(assignment, vocabulary=49152))


def test_the_rows_are_told_in_one_event_and_in_the_log(tmp_path: Path, tokenizer: Any) -> None:
    """How many, how long, what is padding, and the first one as the model sees it, with nothing that moves a
    terminal's cursor."""
    rows = [chat("a", "b\x1b[2J⟦c"), chat("a", "long " * 20)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    listener = prepare(job(tmp_path, path=path, packing=True, max_seq_length=128), tokenizer)
    ((kind, told),) = listener.events
    assert ("data", set(DATA_FIELDS)) == (kind, set(told))
    assert {"sequences": 1, "rows": 2} == {key: told["packing"][key] for key in ("sequences", "rows")}
    assert {"length": told["max"]} == told["peak"]
    row = told["row"]
    # Of a packed sequence the first row, here the longer one.
    assert row["text"].endswith("<|im_start|>assistant↵\n⟦" + "long " * 20 + "<|im_end|>⟧↵\n")
    assert (told["max"], 22) == (row["tokens"], row["trained"])
    assert any(row["text"] in line for line in listener.lines)

    path.write_text(json.dumps(rows[0]) + "\n")
    (tmp_path / "again").mkdir()
    ((_, told),) = prepare(job(tmp_path / "again", path=path), tokenizer).events
    assert told["row"]["text"].endswith("⟦b⟨U+001B⟩[2J⟨U+27E6⟩c<|im_end|>⟧↵\n")


def test_preferences_are_prepared_and_told(tmp_path: Path, sample: Sample, tokenizer: Any) -> None:
    """Both sides of the first pair are shown."""
    from kernel_launcher.worker.rows import open_rows

    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "Why?", "chosen": " Because.", "rejected": " Or not."}) + "\n")
    assignment = job(tmp_path, path=path, type="dpo", max_seq_length=None, max_length=64)
    ((_, told),) = prepare(assignment, tokenizer).events
    assert "Why?⟦ Because.<|im_end|>⟧\nrejected: ⟦ Or not.<|im_end|>⟧" == told["row"]["text"]
    assert {"prompt_ids", "chosen_ids", "rejected_ids"} == set(open_rows(assignment, vocabulary=49152).column_names)


def test_a_tokenizer_that_knows_more_than_the_model_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    """On a GPU it would be an assertion in a kernel, somewhere in the first step."""
    from kernel_launcher.worker.rows import open_rows

    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(chat("a", "b")))
    assignment = job(tmp_path, path=path)
    prepare(assignment, tokenizer)
    with pytest.raises(ModelLoadError, match=r"wrote token \d+, and the model knows 10 tokens only"):
        open_rows(assignment, vocabulary=10)


def test_rows_that_teach_the_wrong_thing_end_the_job(tmp_path: Path, tokenizer: Any) -> None:
    """Unless it allows that; nothing is left behind for other ranks to train on."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(chat("a", "b<|im_end|>")))
    assignment = job(tmp_path, path=path)
    with pytest.raises(InvalidRequest, match="holds the text of a control token") as caught:
        prepare(assignment, tokenizer)
    assert "dataset_format_incompatible" == caught.value.code
    assert [] == list(assignment.run.data.iterdir())
    assert [] == prepare(job(tmp_path / "2", path=path, allow=("control_tokens_in_text",)), tokenizer).warnings


def test_what_looks_like_a_mistake_is_a_warning(tmp_path: Path, tokenizer: Any) -> None:
    """What the counts of the rows say already is not said twice."""
    path = tmp_path / "rows.jsonl"
    rows = [chat("a", "b"), chat("a", "b"), chat("a", "so" + " long" * 100)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cut, twice = prepare(job(tmp_path, path=path), tokenizer).warnings
    assert "1 of 3 rows are longer" in cut
    assert twice.startswith("duplicated_rows: In 1 of 3 rows an earlier row is repeated. See row 2.")
    assert 1 == len(prepare(job(tmp_path / "2", path=path, allow=("duplicated_rows",)), tokenizer).warnings)


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
    for file in assignment.run.data.iterdir():
        file.unlink()

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
