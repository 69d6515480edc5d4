"""The dashboard without a browser: its traits, and what it would send."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import comm
import pytest
from comm.base_comm import BaseComm

from kernel_launcher.launcher.client import Watcher
from kernel_launcher.protocol import control
from tests.kernel.fakes import FakeJob
from veri_jupyter.monitor import dashboard as module
from veri_jupyter.monitor.dashboard import Dashboard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GB = 10**9


class Wire(list[tuple[list[str], int]]):
    """What goes to the browser: the traits of each message, and its bytes."""

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    sent = Wire()

    class Comm(BaseComm):
        def publish_msg(self, _: str, data: Any = None, __: Any = None, buffers: Any = None, **___: Any) -> None:
            size = sum(memoryview(part).nbytes for part in buffers or [])
            sent.append((list((data or {}).get("state", {})), size + len(json.dumps(data, default=str))))

    monkeypatch.setattr(comm, "create_comm", Comm)
    monkeypatch.setattr(module, "_PANE_SECONDS", 0.0)
    return sent


class Shown:
    """A job and its dashboard; clicks are followed at once."""

    def __init__(self, folder: Path, method: str = "sft_text") -> None:
        self.job = FakeJob(folder, "shown")
        self.job.plan(peak=17 * GB, limit=22 * GB, method=method)
        self.job.status("running")
        self.posted: list[Callable[[], None]] = []
        self.board = Dashboard(self.job.entry, self.posted.append)
        self._watcher = Watcher(self.job.entry)

    def draw(self) -> Dashboard:
        while self.posted:
            self.posted.pop(0)()
        self.board.draw(self.job.entry, self._watcher.refresh())
        return self.board

    def steps(self, first: int, last: int, total: int = 20_000) -> None:
        for step in range(first, last + 1):
            more = {"rewards/margins": step / 3 % 1, "rewards/accuracies": step / 7 % 1}
            loss = 2 + 1 / step + step * 7.1 % 1
            self.job.step(step, total, loss=loss, tokens_per_second=410.0 + step, learning_rate=1 / step, **more)

    def answers(self, step: int) -> None:
        said = {"prompt": "a question", "text": "an answer", "tokens": 2, "finished": True}
        self.job.report("samples", step=step, samples=[said])

    def beats(self, now: int) -> None:
        for rank in range(8):
            self.job.report("heartbeat", rank, memory_bytes=now, peak_memory_bytes=now)


@pytest.fixture
def shown(tmp_path: Path, wire: Wire) -> Iterator[Shown]:
    assert [] == wire
    made = Shown(tmp_path / "run")
    yield made
    made.board.close()


def test_an_update_of_ten_lines_is_small(tmp_path: Path, wire: Wire) -> None:
    """A preference job of eight ranks: at most eight messages and 24 KB, however long it has run."""
    made = Shown(tmp_path / "run", "dpo")
    made.steps(1, 4_000)
    made.draw()
    for step in range(4_001, 4_004):
        made.steps(step, step)
        made.beats(10 * GB + step * 10**8)
        wire.clear()
        made.draw()
        assert len(wire) <= 8
        assert wire.bytes <= 24_000
    made.board.close()


def test_nothing_new_is_hardly_sent(shown: Shown, wire: Wire) -> None:
    """A job that stands still costs its line of status."""
    shown.steps(1, 40)
    shown.draw()
    wire.clear()
    shown.draw()
    assert len(wire) <= 1
    assert wire.bytes < 2_000


def test_a_page_that_is_loaded_anew_gets_the_chart_as_it_is(shown: Shown) -> None:
    """plotly alone would send the chart as it was made."""
    shown.draw()
    shown.steps(1, 40)
    figure = shown.draw()._chart.figure  # type: ignore[union-attr]
    state = figure.get_state()
    assert 40 == len(state["_widget_data"][0]["y"]["buffer"])
    assert [0, 78.125] == state["_widget_layout"]["xaxis"]["range"]


def test_what_a_browser_reports_back_changes_nothing(shown: Shown, wire: Wire) -> None:
    """A zoom is that view's: the pump alone writes."""
    shown.steps(1, 3)
    figure = shown.draw()._chart.figure  # type: ignore[union-attr]
    wire.clear()
    report = {"relayout_data": {"xaxis.range": [1, 2]}, "source_view_id": "x"}
    figure.set_state({"_js2py_relayout": report, "_js2py_traceDeltas": {"trace_deltas": [], "trace_edit_id": 1}})
    assert [0, 78.125] == list(figure.layout.xaxis.range)
    assert [] == [traits for traits, _ in wire if any("py2js" in name for name in traits)]


def test_stop_asks_before_it_stops(shown: Shown) -> None:
    """One click asks, the second within a few seconds stops; the button says what it does."""
    board = shown.draw()
    button = board._stop
    assert ("Stop", False) == (button.description, button.disabled)
    button.click()
    shown.draw()
    assert ("Really stop?", "danger") == (button.description, button.button_style)
    assert [] == control.pending(shown.job.entry.run)
    button.click()
    shown.draw()
    assert ("Stopping…", True) == (button.description, button.disabled)
    with shown.job.answering():
        pass
    for thread in threading.enumerate():
        if thread.name == "veri-stop":
            thread.join(timeout=30)
    shown.draw()
    assert ("Stop", True) == (button.description, button.disabled)
    assert "■ cancelled" in board._status.value


def test_a_question_that_nobody_answers_is_taken_back(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second click much later asks again."""
    button = shown.draw()._stop
    button.click()
    shown.draw()
    later = module.time.monotonic() + 60
    monkeypatch.setattr(module.time, "monotonic", lambda: later)
    shown.draw()
    assert ("Stop", "") == (button.description, button.button_style)
    button.click()
    shown.draw()
    assert "Really stop?" == button.description


def test_only_the_tab_in_sight_is_sent_and_at_the_end_all(shown: Shown) -> None:
    """The log is kilobytes a second; after the end there is nobody who would fill a tab."""
    shown.steps(1, 3)
    (shown.job.entry.run.rank(0).stdout).write_text("said <b>\n")
    board = shown.draw()
    assert ["", True, "", ""] == [pane.value and True for pane in board._panes]
    board._tabs.selected_index = 2
    assert 1 == len(shown.posted)
    shown.draw()
    assert "said &lt;b&gt;" in board._panes[2].value
    shown.job.status("completed")
    shown.draw()
    assert all(pane.value for pane in board._panes)


def test_the_first_answers_turn_to_their_tab(shown: Shown) -> None:
    """Also in the middle of a run; once, so that who turns away stays away."""
    shown.steps(1, 3)
    board = shown.draw()
    assert 1 == board._tabs.selected_index
    shown.answers(4)
    assert 0 == shown.draw()._tabs.selected_index
    assert "an answer" in board._panes[0].value
    board._tabs.selected_index = 3
    shown.answers(5)
    assert 3 == shown.draw()._tabs.selected_index


def test_a_tab_that_a_person_chose_is_left_alone(shown: Shown) -> None:
    """Who reads the log when the first answers come goes on reading it."""
    shown.draw()._tabs.selected_index = 2
    shown.answers(1)
    assert 2 == shown.draw()._tabs.selected_index


def test_what_cannot_be_drawn_says_so(shown: Shown) -> None:
    """In the place of the status: why, as text, and how to go on."""
    shown.draw().fail(shown.job.entry, RuntimeError("<b>"))
    said = shown.board._status.value
    assert "RuntimeError: &lt;b&gt;" in said
    assert f"%veri_attach {shown.job.entry.id}" in said
    assert "running" in shown.draw()._status.value


def test_closing_leaves_no_widget(tmp_path: Path, wire: Wire) -> None:
    """Running a cell a hundred times must not fill the kernel with charts."""
    import ipywidgets

    before = set(ipywidgets.widgets.widget._instances)
    made = Shown(tmp_path / "run")
    made.draw()
    made.board.close()
    assert wire
    assert before == set(ipywidgets.widgets.widget._instances)
