"""A look at a data set: which rows are shown, what is said of them, and that it is what a trainer would get."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.data.lint import ModelTokens
from kernel_launcher.data.rows.columns import Columns
from kernel_launcher.data.rows.formats import RowReader
from kernel_launcher.data.show import look as look_module
from kernel_launcher.data.show.look import Asked, Look
from kernel_launcher.data.training.encode import IGNORED, encode_example
from kernel_launcher.errors import InvalidRequest
from kernel_launcher.preflight import look_at
from kernel_launcher.spec import read_spec
from kernel_launcher.spec.fields import Method
from tests.unit.data_toys import ForgetfulCodec, ToyCodec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel_launcher.data.show.view import Kind
    from tests.conftest import Sample


def chat(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


ROWS = [chat(f"question {i}", f"answer {i} " + i * "and on " + "end") for i in range(1, 31)]


def look(rows: list[dict[str, Any]], codec: ToyCodec | None = None, **method: Any) -> Look:
    planned = {"max_seq_length": 1000, "max_length": 1000, "micro_batch_size": 4, **method}
    asked = Asked(
        source="rows", model="toy", columns=Columns(), method=Method(**planned), codec=codec or ToyCodec(),
        tokens=ModelTokens(),
    )  # fmt: skip
    return Look(enumerate(rows, 1), asked)


def numbers(view: Any) -> list[int]:
    return [row.number for row in view.rows]


def test_the_same_call_shows_the_same_rows() -> None:
    """By seed; another seed shows others, and more rows begin with the same ones."""
    first = look(ROWS).view("random", 5)
    assert numbers(first) == numbers(look(ROWS).view("random", 5))
    assert numbers(first) == numbers(look(ROWS).view("random", 9))[:5]
    assert numbers(first)[2:4] == numbers(look(ROWS).view("random", 2, first=2))
    assert numbers(first) != numbers(look(ROWS, seed=7).view("random", 5))


def test_the_longest_come_first() -> None:
    """Longest before the cut, whatever is cut."""
    assert [30, 29, 28] == numbers(look(ROWS).view("longest", 3))
    assert [30, 29, 28] == numbers(look(ROWS, max_seq_length=20).view("longest", 3))


@pytest.mark.parametrize(
    ("too_long", "why"),
    [("cut", "of an answer too"), ("drop", "is left out, as it is too long")],
)
def test_rows_that_are_cut_are_found_with_the_reason(too_long: str, why: str) -> None:
    """In the order of the file; what is lost is counted and marked."""
    whole = look(ROWS).view("longest", 1)
    view = look(ROWS, max_seq_length=40, too_long=too_long).view("cut", 99)
    cut = [row.number for row in look(ROWS).view("longest", 99).rows if row.parts[0].counts["tokens"] > 40]
    assert sorted(cut) == numbers(view)
    assert len(cut) == view.of_kind
    assert why in view.rows[-1].why[0]
    assert whole.rows[0].parts[0].counts["tokens"] - 40 == view.rows[-1].parts[0].counts["cut"]


def test_suspicious_rows_are_those_that_findings_name() -> None:
    """Each says which finding named it; of a clean set there are none."""
    rows = [*ROWS, ROWS[0], chat("empty", "nan")]
    view = look(rows).view("suspicious", 9)
    assert {"duplicated_rows", "placeholder_answers"} <= {finding.code for finding in view.findings}
    said = {row.number: row.why for row in view.rows}
    assert said[32] == ("placeholder_answers",)
    assert "duplicated_rows" in said[31]
    assert (0, ()) == ((clean := look(ROWS).view("suspicious", 9)).of_kind, clean.rows)


def test_a_row_is_what_the_trainer_gets() -> None:
    """Ids and labels of every row, token by token, and the text of all tokens is the text."""
    codec = ToyCodec()
    view = look(ROWS, codec, max_seq_length=30).view("random", 99)
    reader = RowReader(Columns(), "sft_text")
    for row in view.rows:
        _, example = reader.read(ROWS[row.number - 1])
        expected = encode_example(example, codec, max_length=30)  # type: ignore[arg-type]
        kept = [token for token in row.parts[0].tokens if not token.cut]
        assert expected.input_ids == [token.id for token in kept]
        assert expected.labels == [token.id if token.trained else IGNORED for token in kept]
        assert expected.trained_tokens == row.parts[0].counts["trained"]


def test_the_prompt_is_the_one_that_inference_sends() -> None:
    """As the template writes it with a generation prompt."""
    (row,) = look([chat("Who?", "Me.")]).view().rows
    assert "<|user|>\nWho?<|end|>\n<|assistant|>\n" == row.prompt
    (plain,) = look([{"text": "all of it"}]).view().rows
    assert plain.prompt is None


def test_a_pair_has_two_sides_and_one_prompt() -> None:
    """Both with their own tokens and counts."""
    rows = [{"prompt": "Who?", "chosen": " Me it is.", "rejected": " You."}]
    (row,) = look(rows, type="dpo", max_prompt_length=2).view().rows
    assert ["chosen", "rejected"] == [part.name for part in row.parts]
    assert "Who?" == row.prompt
    assert row.parts[0].counts["trained"] > row.parts[1].counts["trained"] > 0


def test_rows_that_cannot_be_used_are_counted_and_the_others_shown() -> None:
    """One bad row hides no good one; where none is good, they are refused as a run would refuse them."""
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 2
    broken = {"messages": turns}
    view = look([*ROWS, broken], ForgetfulCodec()).view("random", 99)
    assert (31, 30) == (view.rows_seen, view.of_kind)
    assert "unusable_rows" in {finding.code for finding in view.findings}
    with pytest.raises(InvalidRequest, match="1 of 1 row cannot be used"):
        look([broken], ForgetfulCodec())
    with pytest.raises(InvalidRequest, match="it holds no rows"):
        look([])


@pytest.mark.parametrize(("bound", "value", "seen"), [("MOST_ROWS", 7, 7), ("MOST_CHARACTERS", 100, 2)])
def test_a_large_file_is_looked_at_in_part_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, bound: str, value: int, seen: int
) -> None:
    """So many rows, or so many characters of them."""
    assert look(ROWS).complete
    monkeypatch.setattr(look_module, bound, value)
    taken = iter(ROWS)
    view = look(taken).view()  # type: ignore[arg-type]
    assert (seen, False) == (view.rows_seen, view.complete)
    assert len(ROWS) - seen - 1 == len(list(taken))


def test_lengths_and_what_packing_saves() -> None:
    """Padding is that of the micro batch; rows of one length need no packing where they fill it."""
    view = look(ROWS, micro_batch_size=8)
    found = view.view().lengths
    assert 0.1 < found["padding_share"] < 0.6
    assert 0.1 < found["packing_saves"] < 0.6
    assert (30, 30, 0, 0) == (found["rows"], found["kept"], found["cut"], found["answer_cut"])
    alike = look([chat("a", "b")] * 8).view().lengths
    assert (0.0, 0.0, 8.0) == (alike["padding_share"], alike["packing_saves"], alike["packing_rows"])


def test_a_row_that_refuses_the_run_says_so() -> None:
    """It is not cut, whatever it would lose."""
    (row, *_) = look(ROWS, max_seq_length=40, too_long="refuse").view("cut").rows
    assert "is too long, which refuses the run" == row.why[0]


def test_a_finding_that_the_job_allows_is_not_shown() -> None:
    """The view says what the run will say."""
    twice = [*ROWS, ROWS[0]]
    assert ["duplicated_rows"] == [finding.code for finding in look(twice).findings]
    assert () == look(twice, allow=("duplicated_rows",)).findings


# The real tokenizer of a model folder


def test_the_sample_is_clean(sample: Sample) -> None:
    """Nothing is found in it, its answers are trained with their end, and nothing is cut."""
    view = look_at(read_spec(sample.tiny, settings={"dataset.id": str(sample.sft)})).view("random", 3)
    assert ((), 600, True) == (view.findings, view.rows_seen, view.complete)
    for row in view.rows:
        trained = "".join(token.text for token in row.parts[0].tokens if token.trained)
        answer = json.loads(sample.sft.read_text().splitlines()[row.number - 1])["messages"][-1]["content"]
        assert f"{answer}<|im_end|>" == trained


def test_parts_of_a_character_have_their_bytes(sample: Sample, tmp_path: Path) -> None:
    """Together they are the text in UTF-8; a token of whole characters needs none."""
    said = "n\u00e9\U0001f642 \u2603 ok"
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": said}))
    (row,) = look_at(read_spec(sample.tiny, settings={"dataset.id": str(tmp_path / "rows.jsonl")})).view().rows
    tokens = [token for token in row.parts[0].tokens if not token.special]
    assert any(token.part for token in tokens)
    assert said.encode() == b"".join(bytes.fromhex(token.part) or token.text.encode() for token in tokens)
    assert said == "".join(token.text for token in tokens)


def test_no_torch_is_needed(sample: Sample) -> None:
    """The command runs, with a file of rows and a model, without torch or transformers."""
    code = f"""
import sys
from kernel_launcher.__main__ import main
main(["data", {str(sample.sft)!r}, "--model", {str(sample.tiny)!r}, "-n", "1"])
print([name for name in ("torch", "transformers", "datasets") if name in sys.modules])
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "600 rows" in said
    assert said.endswith("[]\n")


REFUSED: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "no model": (lambda _: {"model.base": None}, "model.base: no base model"),
    "no data": (lambda _: {"dataset.id": None}, "dataset.id: no data"),
    "no such file": (lambda at: {"dataset.id": str(at / "sfd.jsonl")}, "Did you mean 'sft.jsonl' in that folder"),
    "rows on the hub": (lambda _: {"dataset.id": "some/rows"}, "its rows are on the hub"),
    "a model on the hub": (lambda _: {"model.base": "some/model"}, "its tokenizer is not on this machine"),
    "a bad setting": (lambda _: {"loss_on": "words"}, "method.loss_on"),
    "a bad template": (lambda _: {"chat_template": "./no.jinja"}, "method.chat_template"),
}


def test_held_out_rows_that_cannot_be_read_are_refused(sample: Sample, tmp_path: Path) -> None:
    """Of another file than was meant nothing would be found among the rows to train on."""
    (tmp_path / "other.jsonl").write_text('{"question": "a"}\n')
    spec = read_spec(sample.tiny, settings={"dataset.id": str(sample.sft)})
    with pytest.raises(InvalidRequest, match="1 of 1 row cannot be used") as caught:
        look_at(spec, heldout=tmp_path / "other.jsonl")
    assert ["heldout"] == [fault.key for fault in caught.value.faults]


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, sample: Sample) -> None:
    """What cannot be looked at is refused by key, with what to do."""
    wrong, said = REFUSED[case]
    settings = {"model.base": str(sample.tiny), "dataset.id": str(sample.sft), **wrong(sample.root)}
    with pytest.raises(InvalidRequest) as refused:
        look_at(read_spec(None, settings=settings))
    assert said in str(refused.value)


def test_other_settings_show_other_tokens(sample: Sample) -> None:
    """``loss_on`` and another template decide what is shown, as in a run."""
    settings = {"dataset.id": str(sample.sft), "loss_on": "all", "max_seq_length": 16}
    view = look_at(read_spec(sample.tiny, settings=settings)).view("longest", 1)
    (part,) = view.rows[0].parts
    assert part.counts["trained"] == 15
    assert {"method": "sft_text", "loss_on": "all", "max_seq_length": 16, "too_long": "cut"} == view.settings


def test_every_kind_has_a_view(sample: Sample) -> None:
    """Of rows from a variable, too."""
    found = look_at(read_spec(sample.tiny), [json.loads(line) for line in sample.heldout.read_text().splitlines()])
    kinds: tuple[Kind, ...] = ("random", "longest", "cut", "suspicious")
    assert [3, 3, 0, 0] == [len(found.view(kind, 3).rows) for kind in kinds]
    assert "the rows given" == found.view().source
