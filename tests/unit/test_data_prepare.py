"""All rows -> one Arrow file: what is in it, what is counted, and what is left behind when it fails."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kernel_launcher.data.rows.columns import Columns
from kernel_launcher.data.rows.readers import Broken
from kernel_launcher.data.show.first_row import first_row
from kernel_launcher.data.training import prepare as module
from kernel_launcher.data.training.encode import IGNORED
from kernel_launcher.data.training.prepare import prepare
from kernel_launcher.data.training.tally import CUT_BEFORE_ANSWER, SAME_AFTER_CUT, TOO_LONG, LostRow, read_lost
from kernel_launcher.errors import InvalidRequest
from kernel_launcher.spec.fields import Method
from tests.unit.data_toys import ForgetfulCodec, SystemlessCodec, ToyCodec

CHAT = {"messages": [{"role": "user", "content": "Why now"}, {"role": "assistant", "content": "So it is"}]}
PAIR = {"prompt": "a", "completion": " b"}
TEXT = {"text": "Once upon"}


@pytest.fixture
def target(tmp_path):
    return tmp_path / "train.arrow"


def run(rows, write, *, codec=None, source="", progress=None, inspector=None, **settings):
    rows = enumerate(rows, 1) if isinstance(rows, list) else rows
    method = Method(**({"max_seq_length": 100} | settings))
    options = {"source": source, "progress": progress, "inspector": inspector}
    return prepare(
        rows, Columns(), method, codec or ToyCodec(), write=write, lost=write.with_name("lost.jsonl"), **options
    )


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
    report = run([CHAT, long, PAIR, half, TEXT, long], target, max_seq_length=16)
    assert (6, 4, 1, 1) == (report.rows, report.kept, report.cut, report.answer_cut)
    assert ({CUT_BEFORE_ANSWER: 2}, (2, 6)) == (report.dropped_by_reason, report.dropped_rows)
    assert {"prompt_completion": 4, "messages": 1, "text": 1} == report.formats
    assert 5 == report.plain_rows
    assert 4 == table(target).num_rows
    assert report.tokens == len(table(target)["input_ids"].combine_chunks().flatten())
    assert 16 + 4 + 16 + 4 == report.tokens
    assert 6 + 3 + 15 + 3 == report.trained_tokens
    assert 82 == report.lengths.longest


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
    long = {"prompt": "word " * 20, "completion": "never reached"}
    run([long, PAIR, long], target, max_seq_length=8)
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
    error = refusal([CHAT] * 30, target, max_seq_length=9, source="rows.jsonl")
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


# Rows that are too long


LONG = {"prompt": "word", "completion": " and on" * 20}
UNREACHED = {"prompt": "word " * 20, "completion": "never reached"}


def test_rows_that_are_cut_or_left_out_are_listed(target):
    """Each with its reason and what it lost; those trained as they are, are not in the list."""
    half = {"messages": [*CHAT["messages"], {"role": "user", "content": "And " * 20}]}
    run([CHAT, LONG, UNREACHED, half, TEXT], target, max_seq_length=32)
    assert [
        LostRow(2, "answer_cut", 82, 50),
        LostRow(3, CUT_BEFORE_ANSWER, 44, 44),
        LostRow(4, "cut", 60, 28),
    ] == list(read_lost(target.with_name("lost.jsonl")))


def test_a_list_that_is_not_there_yet_has_no_rows(tmp_path):
    assert [] == list(read_lost(tmp_path / "lost.jsonl"))


def test_rows_that_are_too_long_may_be_left_out_whole(target):
    report = run([CHAT, LONG, TEXT, UNREACHED], target, max_seq_length=16, too_long="drop")
    assert (4, 2, 0, {TOO_LONG: 2}) == (report.rows, report.kept, report.cut, report.dropped_by_reason)
    assert 2 == table(target).num_rows
    assert [LostRow(2, TOO_LONG, 82, 82), LostRow(4, TOO_LONG, 44, 44)] == list(
        read_lost(target.with_name("lost.jsonl"))
    )


def test_rows_that_are_too_long_may_be_refused(target):
    """All are counted, the first are named, and what to do is said."""
    error = refusal([LONG, CHAT, *[LONG] * 30], target, max_seq_length=16, too_long="refuse")
    assert (
        "method.too_long = 'refuse': 31 of 32 rows are longer than max_seq_length = 16 tokens (rows 1, "
        f"{', '.join(str(n) for n in range(3, 22))} and 11 more); the longest has 82 tokens. "
        'Raise max_seq_length, or set too_long to "cut" or "drop".'
    ) == str(error)
    assert 16 == run([CHAT], target, max_seq_length=16, too_long="refuse").lengths.longest


def test_leaving_out_every_row_is_an_error(target):
    error = refusal([LONG], target, max_seq_length=8, too_long="drop")
    assert 'every row that could be trained is longer than max_seq_length = 8 tokens, and too_long is "drop"' in str(
        error
    )
    assert "empty_labels" == error.code


# Preferences


def pair(chosen, rejected, prompt="Why"):
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def preferences(rows, write, **settings):
    return run(rows, write, type="dpo", **({"max_seq_length": None, "max_length": 100} | settings))


def test_preferences_are_tokens_of_prompt_and_both_answers(target):
    codec = ToyCodec()
    report = preferences([pair(" So", " Or not")], target, codec=codec)
    (row,) = table(target).to_pylist()
    words = {name: codec.words(ids) for name, ids in row.items()}
    assert {
        "prompt_ids": ["Why"],
        "chosen_ids": [" ", "So", "<|end|>"],
        "rejected_ids": [" ", "Or", " ", "not", "<|end|>"],
    } == words
    assert (2 + 3 + 5, 3 + 5, 6) == (report.tokens, report.trained_tokens, report.lengths.longest)


def test_a_chat_and_plain_text_are_preferences_alike(target):
    chats = {name: [{"role": "assistant", "content": name}] for name in ("chosen", "rejected")}
    report = preferences([pair(" a", " b"), {**chats, "prompt": [{"role": "user", "content": "Why"}]}], target)
    assert (2, 1) == (report.kept, report.plain_rows)


def test_what_preferences_lose_is_counted(target):
    """A prompt loses its start, answers lose their end; a pair without an answer, or without a difference, teaches
    nothing."""
    rows = [
        pair(" a", " b"),
        pair(" a", " b", prompt="long " * 9 + "prompt"),
        pair(" a" * 9, " b"),
        pair(" a" * 9 + " b", " a" * 9 + " c"),
    ]
    report = preferences(rows, target, max_length=12, max_prompt_length=5)
    assert (4, 3, 2, 1) == (report.rows, report.kept, report.cut, report.answer_cut)
    assert {SAME_AFTER_CUT: 1} == report.dropped_by_reason
    assert [LostRow(2, "cut", 22, 28), LostRow(3, "answer_cut", 20, 8), LostRow(4, SAME_AFTER_CUT, 22, 44)] == list(
        read_lost(target.with_name("lost.jsonl"))
    )
    assert [1, 5, 1] == [len(ids) for ids in table(target)["prompt_ids"].to_pylist()]


def test_a_pair_whose_prompt_leaves_no_room_is_left_out(target):
    report = preferences([pair(" a", " b"), pair(" a", " b", prompt="long " * 9)], target, max_length=12)
    assert {CUT_BEFORE_ANSWER: 1} == report.dropped_by_reason


def test_long_preferences_may_be_refused(target):
    error = refusal(
        [pair(" a", " b", prompt="long " * 9)],
        target,
        type="dpo",
        max_seq_length=None,
        max_length=64,
        max_prompt_length=8,
        too_long="refuse",
    )
    assert "longer than max_length = 64 tokens, or their prompts than max_prompt_length = 8 (row 1)" in str(error)
    assert "Raise max_length" in str(error)


# Packing


def test_packed_rows_keep_their_tokens_and_their_borders(target):
    """Each sequence is whole rows, one behind the other, with their lengths; no row is trained on its first token."""
    codec = ToyCodec()
    rows = [{"text": f"{n} " * n} for n in range(1, 8)]
    report = run(rows, target, codec=codec, max_seq_length=20, packing=True)
    written = table(target)
    assert ["input_ids", "labels", "lengths"] == written.column_names
    found = []
    for sequence in written.to_pylist():
        assert sum(sequence["lengths"]) == len(sequence["input_ids"]) == len(sequence["labels"]) <= 20
        at = 0
        for length in sequence["lengths"]:
            ids, labels = (sequence[name][at : at + length] for name in ("input_ids", "labels"))
            assert [IGNORED, *ids[1:]] == labels
            found.append("".join(codec.words(ids)).removesuffix("<|end|>"))
            at += length
    assert sorted(row["text"] for row in rows) == sorted(found)
    summary = report.summary(2)
    assert {"sequences": written.num_rows, "rows": 7, "padding_share_before": 0.2286} == summary["packing"]
    assert summary["padding_share"] < 0.2286


def test_packing_depends_on_the_seed_alone(target):
    rows = [{"text": f"{n} " * 3} for n in range(50)]
    files = []
    for seed in (1, 1, 2):
        run(rows, target, max_seq_length=16, packing=True, seed=seed)
        files.append(target.read_bytes())
    assert files[0] == files[1] != files[2]


def test_packing_waits_for_a_window_of_rows_only(target, monkeypatch):
    """However many rows there are, as many as a window holds are in memory."""
    monkeypatch.setattr("kernel_launcher.data.training.table._WINDOW_ROWS", 5)
    monkeypatch.setattr(module, "_BATCH_ROWS", 2)
    report = run([TEXT] * 20, target, packing=True)
    written = table(target)
    assert [6, 6, 6, 2] == [len(lengths) for lengths in written["lengths"].to_pylist()]
    assert [24, 24, 24, 8] == [len(ids) for ids in written["input_ids"].to_pylist()]
    assert 80 == report.tokens


# The first row, as text


def shown(target, rows, **settings):
    codec = ToyCodec()
    run(rows, target, codec=codec, **settings)
    return first_row(target, lambda ids: "".join(codec.words(ids)))


def test_the_first_row_is_shown_with_its_trained_part(target):
    row = shown(target, [CHAT, TEXT])
    assert "<|user|>↵\nWhy now<|end|>↵\n<|assistant|>↵\n⟦So it is<|end|>⟧↵\n" == row["text"]
    assert (16, 6) == (row["tokens"], row["trained"])


def test_a_row_cannot_bring_our_marks_or_move_a_cursor(target):
    row = shown(target, [{"prompt": "⟦a⟧\x1b[2J", "completion": "\u202eb"}])
    assert "⟨U+27E6⟩a⟨U+27E7⟩⟨U+001B⟩[2J⟦⟨U+202E⟩b<|end|>⟧" == row["text"]


def test_of_a_long_row_the_ends_of_each_part_are_shown(target):
    row = shown(target, [{"prompt": "a " * 2000, "completion": "b " * 1000}], max_seq_length=10_000)
    assert row["text"].startswith("a a ")
    assert row["text"].endswith("b b <|end|>⟧")
    assert " … 3,400 characters … a " in row["text"]
    assert len(row["text"]) < 1300
    many = {"messages": CHAT["messages"] * 200}
    assert 2001 == len(shown(target, [many], max_seq_length=10_000)["text"])


def test_of_packed_rows_and_of_pairs_the_first_is_shown(target):
    row = shown(target, [TEXT, {"text": "Twice upon a time"}], packing=True)
    assert "Twice⟦ upon a time<|end|>⟧" == row["text"]
    row = shown(target, [pair(" So", " Or not")], type="dpo", max_seq_length=None, max_length=100)
    assert "Why⟦ So<|end|>⟧\nrejected: ⟦ Or not<|end|>⟧" == row["text"]


# An inspector


def test_an_inspector_sees_every_row_and_has_the_last_word(target):
    class Inspector:
        def __init__(self):
            self.seen = []

        def see(self, number, example, row):
            self.seen.append((number, type(example).__name__, len(row.input_ids)))

        def judge(self):
            raise InvalidRequest([])

    inspector = Inspector()
    refusal([PAIR, UNREACHED, TEXT], target, max_seq_length=16, inspector=inspector)
    assert [(1, "PromptCompletion", 4), (2, "PromptCompletion", 16), (3, "Text", 4)] == inspector.seen
