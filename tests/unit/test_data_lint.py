"""The data linter: what it finds, that it finds nothing where nothing is wrong, and what becomes of a run."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_launcher.data.chat.tokenizer import open_codec
from kernel_launcher.data.lint import HeldOut, ModelTokens, RunLinter, lint_rows, not_allowed, refuse_errors
from kernel_launcher.data.lint.catalogue import CATALOGUE
from kernel_launcher.data.rows.columns import Columns
from kernel_launcher.data.rows.examples import Message, Messages
from kernel_launcher.data.rows.faults import RowFaults
from kernel_launcher.data.rows.formats import RowReader
from kernel_launcher.data.rows.source import read_rows
from kernel_launcher.data.training.encode import encode_example
from kernel_launcher.data.training.prepare import prepare
from kernel_launcher.errors import InvalidRequest
from kernel_launcher.spec import read_spec
from kernel_launcher.spec.fields import Method
from kernel_launcher.spec.findings import ACCEPTABLE, FATAL
from tests.unit.lint_planted import PLANTED, asked, mistral, shipped
from tests.unit.lint_toys import TemplateCodec, chat, chatml, chats, completions, lint, pairs, with_rows
from tests.unit.template_toys import TABLE
from tests.unit.template_toys import codec as codec_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Sample

TWICE = with_rows(chats(), {12: chats()[2]})
INJECTED = with_rows(chats(), {2: asked("No.", "Ignore this.<|im_end|>")})


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found_where_it_is_and_nothing_else_is(fault: Any) -> None:
    """Its code, its severity, its first rows and their number."""
    found = lint(fault.data, fault.codec(), **fault.settings)
    assert [(fault.code, fault.severity, fault.rows[:20], len(fault.rows))] == [
        (finding.code, finding.severity, finding.rows, finding.count) for finding in found
    ]


def test_every_kind_of_finding_is_planted() -> None:
    assert set(CATALOGUE) == {fault.code for fault in PLANTED}


def test_every_kind_of_finding_can_be_named_by_a_job() -> None:
    assert set(CATALOGUE) == {*ACCEPTABLE, *FATAL}
    assert sorted(ACCEPTABLE) == list(ACCEPTABLE)
    assert ACCEPTABLE == read_spec({"base_model": "owner/model", "allow": list(ACCEPTABLE)}).method.allow


@pytest.mark.parametrize("loss_on", ["answers", "last_answer", "all"])
def test_nothing_is_found_in_the_sample(sample: Sample, loss_on: str) -> None:
    """No warning either, with the model's own tokenizer, and the held-out rows beside those to train on."""
    columns, codec, model = Columns(), open_codec(sample.tiny), ModelTokens.of(sample.tiny)
    held_out = RowReader(columns, "sft_text").examples(read_rows(sample.heldout), RowFaults(""))
    known = HeldOut.of(example for _, _, example in held_out)
    method = Method(max_seq_length=1024, loss_on=loss_on)
    assert () == lint_rows(read_rows(sample.sft), columns, method, codec, model=model, held_out=known)


def test_nothing_is_found_in_the_preferences_of_the_sample(sample: Sample) -> None:
    method = Method(type="dpo", max_length=1024)
    rows = read_rows(sample.root / "dpo.jsonl")
    model = ModelTokens.of(sample.tiny)
    assert () == lint_rows(rows, Columns(), method, open_codec(sample.tiny), model=model)


@pytest.mark.parametrize("name", TABLE)
def test_nothing_is_found_under_any_chat_template(name: str) -> None:
    """Where its end of turn stops the model; with a system turn where it takes one."""
    codec = codec_of(name)
    rows = [
        chat(*system, ("user", f"What is {n}?"), ("assistant", f"It is {n}, no more."))
        for n in range(12)
        for system in ([], [("system", f"Be {n}.")])
    ]
    model = ModelTokens().stopping_at(codec.control.get(_last_trained(name)))
    found = lint(rows, codec, model=model, max_seq_length=1000)
    assert {"unusable_rows"} >= {finding.code for finding in found}
    assert all(finding.count == 12 for finding in found)


def _last_trained(name: str) -> str:
    codec = codec_of(name)
    example = Messages((Message("user", "a"), Message("assistant", "b")))
    row = encode_example(example, codec, max_length=1000)
    last = next(label for label in reversed(row.labels) if label >= 0)
    return next((text for text, token in codec.control.items() if token == last), "")


WORD = st.text(st.sampled_from("abcdeé🙂"), min_size=1, max_size=5)
SENTENCE = st.lists(WORD, min_size=1, max_size=6).map(" ".join)


@given(st.lists(st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=3), min_size=1, max_size=40))
def test_nothing_is_found_in_random_conversations(conversations: list[list[tuple[str, str]]]) -> None:
    """Of distinct questions and answers, whatever their number, length and language."""
    rows = [
        chat(
            *(
                turn
                for n, (q, a) in enumerate(pairs)
                for turn in (("user", f"{row} {n} {q}"), ("assistant", f"{a} {row}"))
            )
        )
        for row, pairs in enumerate(conversations)
    ]
    assert () == lint(rows, chatml(), max_seq_length=1000)


def test_a_long_list_of_rows_is_counted_and_its_first_are_named() -> None:
    (found,) = lint([asked("nan", f"What is {n}?") for n in range(3000)] + chats(3001), chatml())
    assert (3000, tuple(range(1, 21))) == (found.count, found.rows)
    assert (
        "placeholder_answers: In 3,000 of 6,001 rows the answer is 'nan', as an export writes where a value is "
        "missing. See rows 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 and 2,980 more. "
        "Remove these rows."
    ) == str(found)


def test_errors_come_first() -> None:
    rows = with_rows(INJECTED, {4: asked("nan")})
    assert ["error", "warning"] == [finding.severity for finding in lint(rows, chatml())]


def test_rows_that_are_left_out_for_their_length_have_no_finding_of_it() -> None:
    rows = with_rows(chats(), {7: asked("No, no. " * 200 + "No.")})
    assert [] == [finding.code for finding in lint(rows, chatml(), too_long="drop")]
    assert ["answers_cut"] == [finding.code for finding in lint(rows, chatml())]


def test_a_token_of_words_that_the_generation_config_names_stops_the_model(tmp_path: Path) -> None:
    """A template may end an answer with a token that its tokenizer does not call special."""
    rows, codec = chats(), mistral()
    stop = codec.control.pop("</s>")
    codec.eos = None
    assert ["stop_token_never_trained"] == [finding.code for finding in lint(rows, codec)]
    for stops in (stop, [5, stop]):
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}))
        assert () == lint(rows, codec, model=ModelTokens.of(tmp_path))


@pytest.mark.parametrize("template", ["qwen25", "glm4"])
def test_an_end_of_turn_stops_the_model_although_its_base_stops_elsewhere(template: str) -> None:
    """As of Qwen2.5, which ends plain text with another token; the trained model is saved so that it stops there.

    GLM-4 ends an answer with nothing: what opens the user's next turn ends it.
    """
    control = ("[gMASK]", "<sop>", "<|user|>", "<|assistant|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>")
    codec = TemplateCodec(shipped(template), control, eos="<|endoftext|>")
    assert () == lint(chats(), codec, model=ModelTokens(None, frozenset([codec.ids["<|endoftext|>"]])))


def test_what_is_known_of_a_models_tokens_comes_from_its_files(tmp_path: Path) -> None:
    """Also of a model that does more than text; without files nothing is known."""
    assert ModelTokens(None, None) == ModelTokens.of(tmp_path)
    config = {"eos_token_id": 7, "text_config": {"vocab_size": 10}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert ModelTokens(10, frozenset([7])) == ModelTokens.of(tmp_path)
    (tmp_path / "generation_config.json").write_text("{}")
    assert ModelTokens(10, frozenset([7])) == ModelTokens.of(tmp_path)


class TestRefusing:
    def refusal(self, rows: list[dict[str, Any]], allow: tuple[str, ...] = (), **settings: Any) -> InvalidRequest:
        with pytest.raises(InvalidRequest) as caught:
            refuse_errors(not_allowed(lint(rows, chatml(), **settings), allow), "./rows.jsonl")
        return caught.value

    def test_an_error_refuses_the_run_with_its_rows_and_two_ways_out(self) -> None:
        refusal = self.refusal(INJECTED)
        (fault,) = refusal.faults
        assert ("control_tokens_in_text", "dataset_format_incompatible") == (fault.code, refusal.code)
        assert (
            "dataset.id = './rows.jsonl': In 1 of 12 rows a turn holds the text of a control token, which is read as "
            "that token ('<|im_end|>'). See row 2. Take it out of the turns: the chat template writes the control "
            'tokens. Or, if it is meant: allow = ["control_tokens_in_text"].'
        ) == str(fault)

    def test_each_error_is_a_fault(self) -> None:
        rows = with_rows(INJECTED, {5: asked("\u200b")})
        assert ["control_tokens_in_text", "empty_answers"] == [fault.code for fault in self.refusal(rows).faults]
        assert ["empty_answers"] == [fault.code for fault in self.refusal(rows, ("control_tokens_in_text",)).faults]

    def test_what_no_run_goes_on_with_has_no_such_way_out(self) -> None:
        refusal = self.refusal(chats(), model=ModelTokens(2))
        assert "model_load_error" == refusal.code
        assert "allow" not in str(refusal)

    def test_what_is_allowed_or_a_warning_refuses_nothing(self) -> None:
        refuse_errors(not_allowed(lint(INJECTED, chatml()), ["control_tokens_in_text"]))
        refuse_errors(lint(TWICE, chatml()))


class TestPreparing:
    """The linter of a run sees every row while it is prepared."""

    def prepare(self, rows: list[dict[str, Any]], path: Path, **settings: Any) -> RunLinter:
        method, codec = Method(max_seq_length=200, **settings), chatml()
        linter = RunLinter(codec, method, model=ModelTokens(), source="./rows.jsonl")
        prepare(enumerate(rows, 1), Columns(), method, codec, write=path, inspector=linter)
        return linter

    def test_no_file_appears_of_rows_with_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidRequest, match="control_tokens_in_text"):
            self.prepare(INJECTED, tmp_path / "rows.arrow")
        assert [] == list(tmp_path.iterdir())

    def test_an_error_that_is_allowed_is_gone(self, tmp_path: Path) -> None:
        linter = self.prepare(INJECTED, tmp_path / "rows.arrow", allow=("control_tokens_in_text",))
        assert () == linter.warnings
        assert (tmp_path / "rows.arrow").exists()

    def test_warnings_are_kept_to_be_told(self, tmp_path: Path) -> None:
        (found,) = self.prepare(TWICE, tmp_path / "rows.arrow").warnings
        assert ("duplicated_rows", (12,), 1) == (found.code, found.rows, found.count)
        assert () == self.prepare(TWICE, tmp_path / "other.arrow", allow=("duplicated_rows",)).warnings


def test_a_finding_is_ready_for_json() -> None:
    for rows, method in (
        (TWICE, "sft_text"),
        ([*pairs(), pairs()[0]], "dpo"),
        ([*completions(), chats()[0]], "sft_text"),
    ):
        for finding in lint(rows, chatml(), method):
            assert asdict(finding) == {**json.loads(json.dumps(asdict(finding))), "rows": finding.rows}
