"""Where the memory model cannot say: one click measures a step, and the plan that was asked about has a number."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.errors import VeriError
from kernel_launcher.planner.traced import Traced
from kernel_launcher.preflight import environment, trace
from tests.unit.explorer_toys import L4, Shown
from tests.unit.trace_toys import ANSWER, EXPERTS, folder
from veri_jupyter.explorer.shown import Explorer
from veri_jupyter.explorer.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.trace_toys import Answering


@pytest.fixture
def experts(tmp_path: Path) -> State:
    base = folder(tmp_path / "experts", EXPERTS)
    return State({"model.base": str(base), **L4, "method.zero_stage": 0})


@pytest.fixture
def shown(experts: State, process: Answering) -> Iterator[Shown]:
    made = Shown(experts)
    yield made
    made.live.close()


def is_offered(made: Shown) -> bool:
    panel = made.live._panel
    return panel._offer_row.layout.display != "none" and panel._trace.layout.display != "none"


def said(made: Shown) -> str:
    return str(made.live._panel._offer_said.value)


def click(made: Shown) -> None:
    made.live._panel._trace.click()


def test_one_click_gives_a_number(shown: Shown, process: Answering) -> None:
    """In the verdict with how it was measured, in the bar, in the plan that code gets; the button goes."""
    assert "CAN&#x27;T SAY" in shown.verdict
    assert is_offered(shown)
    click(shown)
    shown.wait()
    assert "✓ FITS" in shown.verdict
    assert "worst: layer forward, measured with torch&#x27;s tracker (4 and 5 of 10 layers" in shown.verdict
    assert 'aria-label="measured 3.0 GiB' in shown.live._panel._memory.value
    assert not is_offered(shown)
    explorer = Explorer(shown.live.state, {})
    explorer._live = shown.live
    assert explorer.plan.peak_text.startswith("FITS ")


def test_anything_can_be_changed_meanwhile(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that it measures; the answer counts for the plan that was asked about, when one is back at it."""
    go, asked = threading.Event(), []

    def slowly(_: object, plan: Any) -> Traced:
        asked.append(plan.method.max_seq_length)
        assert go.wait(30)
        return Traced.from_json(ANSWER)

    with monkeypatch.context() as patched:
        patched.setattr(trace, "trace", slowly)
        click(shown)
        button = shown.live._panel._trace
        assert ("Tracing…", True) == (button.description, button.disabled)
        assert "anything can be changed meanwhile" in said(shown)
        shown.type("method.learning_rate", "1e-4")
        assert "anything can be changed meanwhile" in said(shown), "it is the same step"
        shown.type("method.max_seq_length", "256")
        assert "Another plan is measured" in said(shown)
        assert button.disabled
        go.set()
        shown.wait()
    assert [512] == asked
    assert "CAN&#x27;T SAY" in shown.verdict
    assert is_offered(shown)
    assert ("Trace, 30 s, no GPU", False) == (button.description, button.disabled)
    shown.type("method.max_seq_length", "512")
    assert "✓ FITS" in shown.verdict


def test_what_was_measured_is_known_the_next_time(shown: Shown, process: Answering) -> None:
    """In another explorer, without a click."""
    click(shown)
    shown.wait()
    again = Shown(shown.live.state)
    assert "✓ FITS" in again.verdict
    assert 1 == len(process.asked)
    again.live.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (VeriError("trace_failed", "it is <b>", trace.LEAVE_OUT), "Not measured: it is &lt;b&gt;<"),
        (VeriError("trace_failed", "too slow.", "Shorter rows."), "Not measured: too slow. Shorter rows."),
        (trace._refused("no such thing.", "Take another."), "Not measured: no such thing. Take another."),
        (RuntimeError("hf_abcdefghijklmnopqrstuv"), "Not measured: RuntimeError: ***"),
    ],
)
def test_a_failure_stands_beside_the_button(
    error: Exception, words: str, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words, for this plan; it can be tried again."""

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(trace, "trace", fail)
        click(shown)
        shown.wait()
    assert words in said(shown)
    assert is_offered(shown)
    shown.type("method.max_seq_length", "256")
    assert "Not measured" not in said(shown)
    shown.type("method.max_seq_length", "512")
    click(shown)
    shown.wait()
    assert "✓ FITS" in shown.verdict


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({"model.base": "owner/unknown"}, "config.json of owner/unknown is not here"),
        ({"method.optim": "adafactor"}, "adafactor; the tracker&#x27;s step is no other."),
        ({"method.zero_stage": 3, "method.cpu_offload": True}, "host memory from a GPU&#x27;s (cpu_offload)"),
    ],
)
def test_where_it_cannot_be_measured(
    changes: dict[str, Any], needed: str, experts: State, process: Answering
) -> None:
    """No button: what is needed stands there, and nothing that only a cell could leave out."""
    made = Shown(experts.set(changes))
    assert "CAN&#x27;T SAY" in made.verdict
    assert not is_offered(made)
    assert needed in said(made)
    assert trace.LEAVE_OUT not in said(made)
    made.live.close()


def test_without_the_packages_that_train(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install stands there; once it is here, there is a button."""
    with monkeypatch.context() as patched:
        patched.setattr(environment, "_version", lambda name: None if name == "torch" else "1")
        shown.live.look_again()
        assert not is_offered(shown)
        assert "lacks torch" in said(shown)
        assert "veri-jupyter[train]" in said(shown)
    shown.live.look_again()
    assert is_offered(shown)


def test_another_interpreter_is_asked_when_it_is_needed(experts: State, process: Answering) -> None:
    """Not by every change; what is wrong with it is said after the click."""
    made = Shown(experts.set({"resources.python": "/nowhere/python"}))
    assert is_offered(made)
    assert not process.asked
    click(made)
    made.wait()
    assert "is no interpreter" in said(made)
    made.live.close()


def test_what_the_memory_model_knows_needs_no_measurement() -> None:
    """Neither does what is refused."""
    made = Shown()
    assert not is_offered(made)
    made.type("method.max_seq_length", "x")
    assert not is_offered(made)
    made.live.close()


@pytest.mark.torch
@pytest.mark.matrix
def test_a_mixture_of_experts_for_real(experts: State) -> None:
    """The tracker's own process, and its number."""
    made = Shown(experts)
    click(made)
    made.wait()
    assert "4 and 5 of 10 layers" in made.verdict
    made.live.close()
