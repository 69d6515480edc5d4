"""The explorer without a page: any edits give a plan or refusals, and what one click changes is what it promised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings

from kernel_launcher.data.training.lengths import Lengths
from kernel_launcher.planner.shape import Unknown
from kernel_launcher.planner.verdict import GIB
from kernel_launcher.spec.fields import NotYet
from kernel_launcher.spec.names import SECTIONS
from tests.unit.explorer_toys import EDITS, L4, QWEN, edited
from tests.unit.test_face_static import Page
from veri_jupyter.explorer import data, picture, ways
from veri_jupyter.explorer.data import Rows, total_steps
from veri_jupyter.explorer.knobs import FIRST, knob, knobs
from veri_jupyter.explorer.state import State, judge

if TYPE_CHECKING:
    from pathlib import Path


@given(EDITS)
def test_any_edits_give_a_plan_or_refusals(edits: list[tuple[str, Any]]) -> None:
    """Whatever is typed, and the picture of it."""
    judged = judge(edited(edits))
    assert (judged.plan is None) == bool(judged.faults)
    assert all(fault.key and fault.reason for fault in judged.faults)
    assert picture.verdict(judged, Rows(7))
    assert picture.memory(judged.plan, stale=False)
    if judged.plan is not None:
        assert picture.decided(judged.plan)
        others = judged.plan.alternatives()
        picture.why(judged.plan, ways.stages(judged.plan, others))


@given(EDITS)
@settings(max_examples=40)
def test_a_click_gives_what_it_promised(edits: list[tuple[str, Any]]) -> None:
    """A lever lowers the peak by what it says, another way is that way; neither is refused."""
    state = edited(edits)
    plan = judge(state).plan
    if plan is None:
        return
    for way in ways.levers(state, plan):
        taken = judge(state.set(way.changes))
        assert () == taken.faults
        before, after = plan.verdict.needed_bytes, taken.plan.verdict.needed_bytes  # type: ignore[union-attr]
        assert before is not None
        assert after is not None
        assert way.text.startswith(f"-{(before - after) / GIB:.1f} GiB")
    for way in ways.others(state, plan, plan.alternatives()):
        taken = judge(state.set(way.changes))
        assert () == taken.faults
        assert taken.plan is not None
        assert plan.method.global_batch_size == taken.plan.method.global_batch_size
        assert not isinstance(taken.plan.outlook.workload, Unknown)
        assert f"stage {taken.plan.method.zero_stage} " in way.text


def test_a_setting_at_its_default_is_open() -> None:
    """Setting something and setting it back leaves no trace, so that heads count what was changed."""
    state = QWEN.set({"method.optim": "sgd", "method.lora_target_modules": ["q_proj"]})
    assert 1 == state.changed("Length of the run, optimizer")
    back = state.set(
        {
            "method.optim": "adamw_torch_fused",
            "method.lora_target_modules": list(knob("method.lora_target_modules").default),  # type: ignore[union-attr]
        }
    )
    assert QWEN == back
    assert 0 == back.changed("LoRA")


def test_another_method_takes_the_length_along() -> None:
    """And leaves out what only the other one knows."""
    state = (
        QWEN.set({"method.max_seq_length": 2048, "method.loss_on": "all"})
        .with_method("dpo")
        .set({"method.beta": 0.2})
    )
    assert 2048 == state.settings["method.max_length"]
    assert () == judge(state).faults
    back = state.with_method("sft_text")
    assert QWEN.set({"method.max_seq_length": 2048}) == back


def test_full_training_has_no_setting_of_an_adapter() -> None:
    """Else each of them would be refused."""
    state = QWEN.with_lora(16).set({"method.lora_alpha": 32.0})
    assert state.has_lora
    assert 16 == judge(state).plan.method.lora_rank  # type: ignore[union-attr]
    assert QWEN == state.with_lora(None)


def test_the_controls_are_the_fields() -> None:
    """Each field that this release has or can plan stands under one head; the others are no controls."""
    listed = [each for head in knobs().values() for each in head]
    assert len(listed) == len({each.key for each in listed})
    assert all(each.help for each in listed)
    assert knobs()[FIRST][0].key == "model.base"
    for section, model in SECTIONS.items():
        for name, info in model.model_fields.items():
            mark = next((item for item in info.metadata if isinstance(item, NotYet)), None)
            if mark is not None and not mark.planned:
                assert knob(f"{section}.{name}") is None
    only_one = ("data_parallel_size", "tensor_parallel_size", "context_parallel_size", "pipeline_parallel_size")
    assert [] == [name for name in only_one if knob(f"method.{name}")]


def test_the_verdict_in_two_lines() -> None:
    """Number, limit, doubt and place; the machine, steps, the batch, the rows."""
    state = QWEN.set({"method.global_batch_size": 32, "method.num_epochs": 3.0, "method.lora_rank": 16})
    said = Page(picture.verdict(judge(state), Rows(1204))).text
    for words in (
        "✓ FITS",
        "of 22.0 GiB per rank",
        "worst: ",
        "4 x L4-24GB",
        "114 steps",
        "32 rows a step",
        "1,204 rows",
    ):
        assert words in said


def test_each_stage_has_its_reason() -> None:
    """Those that do not fit, those that send more, those that cannot be."""
    plan = judge(QWEN).plan
    assert plan is not None
    said = [(each.stage, each.chosen, each.reason) for each in ways.stages(plan, plan.alternatives())]
    assert [(0, False), (2, False), (3, True)] == [each[:2] for each in said]
    assert "does not fit" in said[0][2]
    alone = judge(QWEN.set({"resources.gpu_count": 1})).plan
    assert alone is not None
    reasons = [each.reason for each in ways.stages(alone, alone.alternatives())]
    assert ["one GPU has nobody to share its states with"] * 2 == reasons[1:]


def test_a_model_whose_layers_are_unknown_has_no_picture() -> None:
    """It says so, and offers nothing."""
    judged = judge(State({"model.base": "Qwen/Qwen3.5-9B", **L4}))
    assert judged.plan is not None
    assert "? CAN'T SAY" in Page(picture.verdict(judged, Rows())).text
    assert "does not know these layers" in picture.memory(judged.plan, stale=False)
    assert [] == ways.levers(State({}), judged.plan) == ways.others(State({}), judged.plan, [])


def test_hostile_text_is_text() -> None:
    """A value, a name, a reason cannot bring markup with them."""
    hostile = "<script>window.pwned = 1</script>"
    judged = judge(State({"model.base": "Qwen/Qwen3-4B", "method.precision": hostile, hostile: hostile}))
    page = Page(picture.verdict(judged, Rows()))
    assert hostile in page.text
    assert "script" not in [tag for tag, _ in page.tags]
    assert "<script" not in picture.hint(hostile, judged.faults[0])


@pytest.mark.parametrize(("rows", "epochs", "steps"), [(1204, 3.0, 114), (1, 1.0, 1), (64, 0.5, 1), (65, 1.0, 3)])
def test_steps_are_counted_as_the_trainer_does(rows: int, epochs: float, steps: int) -> None:
    """A last batch that is not full is a step, too."""
    plan = judge(QWEN.set({"method.global_batch_size": 32, "method.num_epochs": epochs})).plan
    assert plan is not None
    assert steps == total_steps(plan, rows)
    assert total_steps(plan, None) is None


def test_rows_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with every move of a slider; again when the file, the method or a column is another."""
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "a", "completion": "b"}\n' * 5)
    looks: list[Any] = []
    check = data._check
    monkeypatch.setattr(data, "_check", lambda *asked: looks.append(asked) or check(*asked))
    rows_of = data.RowsOf({"df": [{"foo": 1}]})
    state = QWEN.set({"dataset.id": str(file)})
    for length in (512, 1024):
        assert Rows(5) == rows_of(_spec(state.set({"method.max_seq_length": length})), "")
    assert 1 == len(looks)
    file.write_text('{"prompt": "a", "completion": "b"}\n' * 6)
    assert Rows(6) == rows_of(_spec(state), "")
    (fault,) = rows_of(_spec(state.with_rows("df")), "df").faults
    assert "dataset" in fault.key
    (fault,) = rows_of(_spec(state.with_rows("gone")), "gone").faults
    assert "no such variable" in fault.reason


def test_rows_in_tokens() -> None:
    """How long they are, how many are longer than is allowed, how much of a micro batch is padding."""
    lengths = Lengths()
    for length in (100, 100, 300, 2000):
        lengths.add(length)
    judged = judge(QWEN.set({"method.micro_batch_size": 4, "method.max_seq_length": 500}))
    assert judged.plan is not None
    said = "tokens a row p50 100, p95 2,000, most 2,000; 1 of 4 too long; 50% padding"
    assert said == data.in_tokens(judged.plan, lengths)
    assert said in Page(picture.verdict(judged, Rows(4, lengths=lengths))).text


def test_variables_that_hold_rows() -> None:
    """Lists of dicts and the like; neither other lists nor hidden names."""
    assert ["df"] == data.names({"df": [{"a": 1}], "_": [{"a": 1}], "n": [1], "empty": [], "text": "x"})


def _spec(state: State) -> Any:
    return judge(state).spec
