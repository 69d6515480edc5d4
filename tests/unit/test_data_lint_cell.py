"""What the linter says in the cell, where no tokenizer is at hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.data.check import LINTED_BYTES, check_file, check_rows, word_linter
from kernel_launcher.data.rows.columns import Columns
from kernel_launcher.errors import InvalidRequest
from kernel_launcher.preflight import look_at
from kernel_launcher.preflight.dataset import check_dataset
from kernel_launcher.spec import read_spec
from tests.unit.lint_planted import asked
from tests.unit.lint_toys import chats, pairs, with_rows

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_launcher.errors import Fault
    from tests.conftest import Sample

EMPTY = with_rows(chats(), {4: asked("\u200b")})
EQUAL = [{"prompt": f"Q: {n}?", "chosen": f" {n}.", "rejected": f" {n}."} for n in range(12)]


def faults(rows: Any, root: Path, *, to_run: bool = True, **settings: Any) -> list[Fault]:
    spec = read_spec({"base_model": "owner/model", **settings})
    return check_dataset(spec, rows, root, to_run=to_run)[2]


@pytest.mark.parametrize(
    ("rows", "method", "code"), [(EMPTY, "sft_text", "empty_answers"), (EQUAL, "dpo", "chosen_equals_rejected")]
)
def test_rows_that_teach_the_wrong_thing_are_refused_at_once(
    rows: list[Any], method: str, code: str, tmp_path: Path
) -> None:
    """From a variable, and from a file; not if the job allows it."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert [("dataset.id", code)] == [(fault.key, fault.code) for fault in faults(rows, tmp_path, method=method)]
    assert [code] == [fault.code for fault in faults(None, tmp_path, method=method, dataset_id=str(path))]
    assert [] == faults(rows, tmp_path, method=method, allow=[code])


def test_an_empty_answer_is_refused_by_name_with_the_way_out(tmp_path: Path) -> None:
    """Nothing at all, in a chat and as a completion, among rows that are fine; allowed, it is trained on."""
    for rows in (
        with_rows(chats(), {4: asked("")}),
        [{"prompt": "a", "completion": " b"}, {"prompt": "c", "completion": " "}],
    ):
        (fault,) = faults(rows, tmp_path)
        assert "empty_answers" == fault.code
        assert "nothing of an answer can be seen, so the model learns to say nothing. See row " in fault.reason
        assert fault.fix.endswith('Or, if it is meant: allow = ["empty_answers"].')
        assert [] == faults(rows, tmp_path, allow=["empty_answers"])


def test_a_look_at_the_rows_is_not_refused_for_what_it_is_to_show(tmp_path: Path) -> None:
    assert [] == faults(EMPTY, tmp_path, to_run=False)


def test_a_warning_refuses_nothing(tmp_path: Path) -> None:
    assert [] == faults([*chats(), chats()[0]], tmp_path)
    assert [] == faults(with_rows(pairs(), {12: pairs()[0]}), tmp_path, method="dpo")


def test_only_what_is_read_in_a_moment_is_linted(tmp_path: Path) -> None:
    """The job looks at every row, with the tokenizer."""
    assert word_linter(LINTED_BYTES) is not None
    assert word_linter(LINTED_BYTES + 1) is None
    assert () == check_rows(enumerate(EMPTY, 1), Columns(), "sft_text").findings
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in EMPTY))
    assert ["empty_answers"] == [finding.code for finding in check_file(path, Columns(), "sft_text").findings]


def test_a_look_finds_held_out_rows_among_those_to_train_on(sample: Sample, tmp_path: Path) -> None:
    """In a file beside them; a file that is not there is named as what it was given for."""
    spec = read_spec({"base_model": str(sample.tiny), "dataset_id": str(sample.sft)})
    leak = tmp_path / "heldout.jsonl"
    leak.write_text("".join(sample.sft.read_text().splitlines(keepends=True)[6:8]) + sample.heldout.read_text())
    (found,) = look_at(spec, heldout=leak).findings
    assert ("heldout_overlap", "error", (7, 8)) == (found.code, found.severity, found.rows)
    assert () == look_at(spec, heldout=sample.heldout).findings
    with pytest.raises(InvalidRequest, match=r"^heldout = .*there is no such file"):
        look_at(spec, heldout=tmp_path / "nothing.jsonl")
