"""All rows -> one Arrow file: what is in it, what is counted, and what is left behind when it fails."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kernel_launcher.data import prepare as module
from kernel_launcher.data.columns import Columns
from kernel_launcher.data.encode import IGNORED
from kernel_launcher.data.prepare import prepare
from kernel_launcher.data.readers import Broken
from kernel_launcher.errors import InvalidRequest
from tests.unit.data_toys import ForgetfulCodec, SystemlessCodec, ToyCodec

CHAT = {"messages": [{"role": "user", "content": "Why now"}, {"role": "assistant", "content": "So it is"}]}
PAIR = {"prompt": "a", "completion": " b"}
TEXT = {"text": "Once upon"}


@pytest.fixture
def target(tmp_path):
    return tmp_path / "train.arrow"


def run(rows, write, *, codec=None, method="sft_text", max_length=100, loss_on="answers", **options):
    rows = enumerate(rows, 1) if isinstance(rows, list) else rows
    codec = codec or ToyCodec()
    return prepare(rows, Columns(), method, codec, max_length=max_length, loss_on=loss_on, write=write, **options)


def refusal(rows, write, **options):
    with pytest.raises(InvalidRequest) as caught:
        run(rows, write, **options)
    assert [] == list(write.parent.iterdir())
    return caught.value


def table(path):
    with pa.ipc.open_stream(path) as stream:
        return stream.read_all()


def test_the_file_holds_ids_and_labels_row_by_row(target):
    codec = ToyCodec()
    run([CHAT, PAIR, TEXT], target, codec=codec)
    written = table(target)
    numbers = pa.list_(pa.int32())
    assert pa.schema({"input_ids": numbers, "labels": numbers}) == written.schema
    first, second, third = written.to_pylist()
    assert ["a", " ", "b", "<|end|>"] == codec.words(second["input_ids"])
    assert [IGNORED, *second["input_ids"][1:]] == second["labels"]
    assert third["input_ids"] == third["labels"]
    assert ["So", " ", "it", " ", "is", "<|end|>"] == codec.words([x for x in first["labels"] if x != IGNORED])


@pytest.mark.torch
def test_the_file_is_a_data_set_on_disk(target):
    """``datasets`` maps it into memory as it is."""
    datasets = pytest.importorskip("datasets")
    run([CHAT] * 1200, target)
    mapped = datasets.Dataset.from_file(str(target))
    assert (1200, ["input_ids", "labels"]) == (len(mapped), mapped.column_names)
    assert str(target) == mapped.cache_files[0]["filename"]
    assert table(target).slice(1199).to_pylist() == [mapped[1199]]


def test_the_report_counts_every_row_once(target):
    long = {"prompt": "word " * 20, "completion": "never reached"}
    half = {"prompt": "word", "completion": " and on" * 20}
    report = run([CHAT, long, PAIR, half, TEXT, long], target, max_length=16)
    assert (6, 4, 1, 1) == (report.rows, report.kept, report.cut, report.answer_cut)
    assert ({module.CUT_BEFORE_ANSWER: 2}, (2, 6)) == (report.dropped_by_reason, report.dropped_rows)
    assert {"prompt_completion": 4, "messages": 1, "text": 1} == report.formats
    assert 5 == report.plain_rows
    assert 4 == table(target).num_rows
    assert report.tokens == len(table(target)["input_ids"].combine_chunks().flatten())
    assert 16 + 4 + 16 + 4 == report.tokens
    assert 6 + 3 + 15 + 3 == report.trained_tokens
    assert 82 == report.longest


def test_progress_reaches_the_number_of_rows(target, monkeypatch):
    monkeypatch.setattr(module, "_BATCH_ROWS", 2)
    seen = []
    run([CHAT] * 5, target, progress=seen.append)
    assert [2, 4, 5] == seen
    assert 5 == table(target).num_rows


def test_long_rows_make_small_batches(target, monkeypatch):
    monkeypatch.setattr(module, "_BATCH_CHARACTERS", 10)
    seen = []
    run([CHAT] * 3, target, progress=seen.append)
    assert [1, 2, 3] == seen


def test_a_batch_of_dropped_rows_leaves_no_empty_batch(target, monkeypatch):
    monkeypatch.setattr(module, "_BATCH_ROWS", 1)
    run([CHAT, PAIR, CHAT], target, max_length=5)
    assert [1] == [chunk.num_rows for chunk in table(target).to_batches()]


def test_all_rows_are_judged_before_the_job_is_refused(target, monkeypatch):
    """A misfit far behind the batches that were written, and one that the template refuses: both are told."""
    monkeypatch.setattr(module, "_BATCH_ROWS", 2)
    system = {"messages": [{"role": "system", "content": "a"}, *CHAT["messages"]]}
    rows = [CHAT] * 5 + [{"a": 1}, CHAT, system, Broken("it is not JSON: expecting value (character 3).")]
    error = refusal(rows, target, codec=SystemlessCodec(), source="rows.jsonl")
    assert (
        "dataset.id = 'rows.jsonl': 3 of 9 rows cannot be used. sft_text needs messages, or prompt and completion, "
        "or instruction and output, or text. Columns with other names are named under [dataset].\n"
        "  row 6: it fits no format. Columns: a.\n"
        "  row 8: the chat template does not take it: System role not supported.\n"
        "  row 9: it is not JSON: expecting value (character 3)."
    ) == str(error)
    assert ("dataset_format_incompatible", 3) == (error.code, error.details["fault_count"])


def test_a_template_that_forgets_refuses_the_rows_it_cannot_mark(target):
    many = {"messages": CHAT["messages"] * 2}
    error = refusal([CHAT, many], target, codec=ForgetfulCodec())
    assert "1 of 2 rows cannot be used. Mend or remove them.\n  row 2: turn 2: the chat template writes" in str(error)


def test_a_model_without_a_chat_template_is_told_once(target):
    codec = ToyCodec()
    codec.chat = False
    error = refusal([PAIR] + [CHAT] * 50, target, codec=codec)
    assert 1 == str(error).count("no chat template")
    assert len(str(error)) < 200


def test_nothing_left_to_train_on_is_an_error_with_rows_and_cause(target):
    error = refusal([CHAT] * 30, target, max_length=9, source="rows.jsonl")
    assert "empty_labels" == error.code
    assert (
        "dataset.id = 'rows.jsonl': within 9 tokens no row reaches what it should learn (rows "
        f"{', '.join(str(n) for n in range(1, 21))} and 10 more). "
        "Raise max_seq_length (the longest row has 16 tokens), or shorten the prompts."
    ) == str(error)


def test_no_rows_are_refused(target):
    assert "it holds no rows" in str(refusal([], target))


def test_a_reader_that_fails_leaves_nothing_behind(target):
    def rows():
        yield 1, CHAT
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        run(rows(), target)
    assert [] == list(target.parent.iterdir())


def test_preferences_are_not_encoded(target):
    with pytest.raises(TypeError):
        run([{"chosen": "a", "rejected": "b"}], target, method="dpo")
