"""The explorer's widgets without a browser: what a click does, and what it would send."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import comm
import pytest
from comm.base_comm import BaseComm
from hypothesis import given, settings

from kernel_launcher.errors import Fault, InvalidRequest, LaunchFailed
from kernel_launcher.planner.peak import peak
from kernel_launcher.planner.verdict import GIB
from tests.kernel.fakes import FakeJob
from tests.unit.explorer_toys import EDITS, QWEN, ROWS, Shown, edited
from veri_jupyter import start
from veri_jupyter.explorer import live
from veri_jupyter.explorer.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_BYTES, MOST_MESSAGES = 10_000, 24


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each message to the browser."""
    found: list[int] = []

    class Comm(BaseComm):
        def publish_msg(self, _: str, data: Any = None, __: Any = None, ___: Any = None, **____: Any) -> None:
            found.append(len(json.dumps(data, default=str)))

    monkeypatch.setattr(comm, "create_comm", Comm)
    return found


@pytest.fixture
def shown(sent: list[int]) -> Iterator[Shown]:
    made = Shown()
    assert sent
    yield made
    made.live.close()


def test_a_change_is_small(shown: Shown, sent: list[int]) -> None:
    """At most 10 KB, whatever is changed, with every head open; a slider sends no more than a text."""
    shown.open_all()
    changes = {
        "method.max_seq_length": "4096", "resources.gpu_count": "8", "method.micro_batch_size": "2",
        "method.type": "dpo", "method.precision": "fp32", "resources.gpu_type": "H100-80GB",
        "model.base": "meta-llama/Llama-3.1-70B", "dataset.id": "df", "method.lora_rank": "16",
    }  # fmt: skip
    for key, value in changes.items():
        sent.clear()
        shown.type(key, value)
        assert 0 < sum(sent) <= MOST_BYTES
        assert len(sent) <= MOST_MESSAGES
    sent.clear()
    shown.field("method.micro_batch_size")._slider.index = 6
    assert "8" == shown.field("method.micro_batch_size")._control.value
    assert sum(sent) <= MOST_BYTES


def test_the_same_again_sends_nothing(shown: Shown, sent: list[int]) -> None:
    """What has not changed is not sent."""
    sent.clear()
    shown.live.look_again()
    assert [] == sent


def test_what_leaves_the_memory_alone_computes_no_peak(shown: Shown) -> None:
    """Neither does a way back to what was planned before."""
    before = peak.cache_info().misses
    shown.type("method.learning_rate", "1e-4")
    assert before == peak.cache_info().misses
    shown.type("method.max_seq_length", "2048")
    assert before < (after := peak.cache_info().misses)
    shown.live._panel._undo.click()
    shown.type("method.max_seq_length", "2048")
    assert after == peak.cache_info().misses


def test_every_control_is_a_view_of_the_same_state(shown: Shown) -> None:
    """A text box, its slider, the placeholder of what is open, the text, the verdict."""
    field = shown.field("method.max_seq_length")
    assert ("", "1024") == (field._control.value, field._control.placeholder)
    shown.type("method.max_seq_length", "2,048")
    assert 2048 == shown.settings["method.max_seq_length"]
    assert 2048 == field._slider.value
    assert "max_seq_length = 2048" in shown.text.value
    shown.live._form._lora.value = True
    assert "0.0002" == shown.field("method.learning_rate")._control.placeholder
    assert "LoRA · 1 changed" in shown.heads


def test_a_refusal_stands_beside_its_field(shown: Shown) -> None:
    """There, in the verdict and at the closed head; the last plan stays in sight; mending it takes all back."""
    before = shown.live._panel._memory.value
    shown.type("method.micro_batch_size", "x")
    assert "✗ must be a whole number" in shown.field("method.micro_batch_size")._hint.value
    assert "REFUSED" in shown.verdict
    assert "vx-stale" in shown.live._panel._memory.value
    assert shown.live._panel._launch.disabled
    shown.type("method.micro_batch_size", "auto")
    assert before == shown.live._panel._memory.value
    shown.text.value = shown.text.value.replace("[method]", "[method]\nlora_dropout = 0.1")
    assert "LoRA · 1 changed · refused" in shown.heads
    shown.open("LoRA")
    assert "without lora_rank" in shown.field("method.lora_dropout")._hint.value


def test_levers_other_ways_and_undo(shown: Shown) -> None:
    """One click applies; another takes it back."""
    lever, *_ = shown.ways()
    text, before = lever.description, shown.live.judged.plan
    lever.click()
    plan = shown.live.judged.plan
    assert plan is not None
    assert before is not None
    assert text.startswith(f"-{(before.verdict.needed_bytes - plan.verdict.needed_bytes) / 2**30:.1f} GiB")  # type: ignore[operator]
    shown.live._panel._undo.click()
    assert QWEN == shown.live.state
    assert shown.live._panel._undo.disabled


def test_every_way_is_one_click(shown: Shown) -> None:
    """All stages, micro batches and recomputes, best first; the plan's is the one that is selected."""
    every = shown.live._panel._all
    assert () == every._list.options, "closed, so none is sent"
    every._fold.head.value = True
    plan = shown.live.judged.plan
    assert plan is not None
    assert f"All {len(plan.alternatives())} ways to this batch" == every._fold.title
    listed = every._list.options
    assert len(plan.alternatives()) == len(listed) == len(set(listed))
    assert f"{plan.verdict.needed_bytes / GIB:.1f} GiB" in every._list.value  # type: ignore[operator]
    for place, way in enumerate(plan.alternatives()):
        every._list.index = place
        taken = shown.live.judged.plan
        assert taken is not None
        assert way.workload == taken.outlook.workload
        assert place == every._list.index
    assert listed == every._list.options
    shown.type("method.max_seq_length", "x")
    assert every._list.disabled
    shown.live._panel._undo.click()
    assert not every._list.disabled


def test_a_head_says_what_is_below_it(shown: Shown) -> None:
    """It is a button, so that keys reach it; its controls are made when it is opened, and not before."""
    assert ["LoRA", "Memory and precision"] == shown.heads[:2]
    assert "method.precision" not in shown.live._form._fields
    shown.open("Memory and precision")
    shown.type("method.precision", "fp32")
    assert "Memory and precision · 1 changed" == shown.heads[1]
    assert "" == shown.live._panel._decided.value
    shown.live._panel._decided_fold.head.value = True
    assert "zero_stage" in shown.live._panel._decided.value


def test_pasting_fills_the_form(shown: Shown) -> None:
    """And leaves the text as it was typed; what cannot be read leaves the form as it was."""
    pasted = '%%veri_plan --data df\n[model]\nbase = "Qwen/Qwen3-4B"\n[method]\nlora_rank = 8   # small\n'
    shown.text.value = pasted
    assert pasted == shown.text.value
    assert ("Qwen/Qwen3-4B", "df") == (
        shown.field("model.base")._control.value,
        shown.field("dataset.id")._control.value,
    )
    assert shown.live._form._lora.value
    assert "1,204 rows" in shown.verdict
    shown.text.value = "[model"
    assert "is not TOML" in shown.live._panel._text_said.value
    assert {"model.base": "Qwen/Qwen3-4B", "method.lora_rank": 8} == shown.settings
    shown.live._panel._as.value = "Python"
    assert shown.text.value.startswith("import veri_jupyter")


@given(EDITS)
@settings(max_examples=8)
def test_a_form_can_show_any_text(edits: list[tuple[str, Any]]) -> None:
    """Also values that no control offers, and none of it changes the settings by being shown."""
    made = Shown()
    made.open_all()
    state = edited(edits)
    made.live._go(state)
    assert repr(state) == repr(made.live.state)
    made.live.close()


def test_edits_that_wait_are_drawn_together(shown: Shown, sent: list[int]) -> None:
    """A slider may be faster than the picture; whoever types is not overwritten meanwhile."""
    shown.pump.waits = True
    for length in ("512", "1024", "4096"):
        shown.type("method.max_seq_length", length)
    sent.clear()
    shown.pump.run()
    assert 4096 == shown.settings["method.max_seq_length"]
    assert "4096" == shown.field("method.max_seq_length")._control.value
    assert sum(sent) <= MOST_BYTES


def test_an_explorer_without_a_model_asks_for_one(sent: list[int]) -> None:
    """Nothing is red before somebody did something."""
    made = Shown(State({}))
    assert sent
    assert "NO MODEL" in made.verdict
    assert "vx-fault" not in made.field("model.base")._hint.value
    assert [] == made.ways()
    made.type("model.base", "Qwen/Qwen3-0.6B")
    assert "vx-badge fits" in made.verdict or "vx-badge tight" in made.verdict or "vx-badge no" in made.verdict
    made.live.close()


def test_what_hinders_a_launch_is_said(shown: Shown) -> None:
    """A machine that is not here; no data."""
    assert "this machine has" in shown.live._panel._said.value
    assert "this machine has" in shown.live._panel._launch.tooltip
    assert shown.live._panel._launch.disabled
    shown.type("resources.gpu_type", "auto")
    shown.type("resources.gpu_count", "1")
    assert "dataset.id: no data" in shown.live._panel._said.value


HERE = State(
    {"model.base": "HuggingFaceTB/SmolLM2-135M", "resources.gpu_type": "CPU", "resources.gpu_count": 1}, "df"
)


def test_launch_shows_the_job(tmp_path: Path, sent: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same preparation as a cell's, with the rows of the variable; then the dashboard."""
    job = SimpleNamespace(name="mine", id="mine-1", entry=FakeJob(tmp_path / "run", "mine").entry)
    asked: list[Any] = []
    monkeypatch.setattr(start, "prepare", lambda *given: asked.append(given) or "prepared")
    monkeypatch.setattr(start, "launch", lambda prepared, quiet: (prepared, quiet) == ("prepared", True) and job)
    made = Shown(HERE)
    made.wait()  # the rows are looked at meanwhile
    assert not made.live._panel._launch.disabled
    made.pump.waits = True
    made.live._panel._launch.click()
    made.pump.waiting.pop(0)()
    assert ("Starting…", True) == (made.live._panel._launch.description, made.live._panel._launch.disabled)
    made.wait()
    assert [(HERE.settings, ROWS, {})] == asked
    assert [job] == made.started
    assert "%veri_attach mine-1" in made.live._panel._said.value
    ((watcher, _),) = made.pump.watched
    assert "mine" == watcher.entry.name
    assert sent
    made.live.close()


@pytest.mark.parametrize("drawn", [True, False])
def test_what_is_not_in_sight_is_not_started(
    drawn: bool, tmp_path: Path, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit that a click on Launch overtook, whether the page shows it already or not; the next click starts it."""
    job = SimpleNamespace(name="mine", id="mine-1", entry=FakeJob(tmp_path / "run", "mine").entry)
    asked: list[Any] = []

    def prepare(settings: Any, *_: object) -> str:
        if not asked:
            made.live._edited("method.max_seq_length", 64, None)
            if drawn:
                made.live._follow()
        asked.append(settings)
        return "prepared"

    monkeypatch.setattr(start, "prepare", prepare)
    monkeypatch.setattr(start, "launch", lambda *_, quiet: job)
    made = Shown(HERE)
    made.pump.waits = True
    for started in ([], [job]):
        made.live._panel._launch.click()
        made.wait()
        assert started == made.started
        assert started or "nothing was started" in made.live._panel._said.value
        assert not made.live._panel._launch.disabled
    assert [None, 64] == [settings.get("method.max_seq_length") for settings in asked]
    assert sent
    made.live.close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            InvalidRequest([Fault("job.name", "'x'", "is taken.", "Take another.")]),
            "job.name = &#x27;x&#x27;: is taken.",
        ),
        (LaunchFailed("it did not come up"), "launch: it did not come up"),
        (RuntimeError("<b>"), "launch: RuntimeError: &lt;b&gt;"),
    ],
)
def test_a_launch_that_fails_says_why(
    error: Exception, said: str, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside Launch, and beside the field; the next change takes it back."""

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(start, "prepare", refuse)
    made = Shown(HERE)
    made.open("The run itself")
    made.pump.waits = True
    made.live._panel._launch.click()
    made.pump.run()
    made.wait()
    assert said in made.live._panel._said.value
    if isinstance(error, InvalidRequest):
        assert "is taken." in made.field("job.name")._hint.value
    made.pump.waits = False
    made.type("method.learning_rate", "1e-4")
    assert said not in made.live._panel._said.value
    assert sent
    made.live.close()


def test_what_cannot_be_drawn_says_so(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the verdict would be, as text and without secrets; undo and the next change draw again."""

    def fail(*_: object) -> None:
        raise RuntimeError("<b> hf_abcdefghijklmnopqrstuv")

    before, shown.pump.tells = shown.verdict, True
    with monkeypatch.context() as patched:
        patched.setattr(live, "judge", fail)
        shown.type("method.max_seq_length", "2048")
        assert "NOT DRAWN" in shown.verdict
        assert "vx-stale" in shown.live._panel._memory.value
        assert "RuntimeError: &lt;b&gt; ***. Undo" in shown.verdict
        assert "could not be drawn" in shown.live._panel._said.value
        assert [] == shown.ways()
        assert shown.live._panel._launch.disabled
        assert not shown.live._panel._undo.disabled
    shown.live._panel._undo.click()
    assert before == shown.verdict


def test_closing_leaves_no_widget(sent: list[int]) -> None:
    """Running a cell a hundred times must not fill the kernel."""
    import ipywidgets

    before = set(ipywidgets.widgets.widget._instances)
    made = Shown()
    made.open("LoRA")
    made.live.close()
    assert sent
    assert before == set(ipywidgets.widgets.widget._instances)
