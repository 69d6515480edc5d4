"""What tests of the explorer share: edits that somebody may make, and a pump that draws at once."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from kernel_launcher.facts.catalogue import model_ids
from veri_jupyter.explorer.knobs import knobs
from veri_jupyter.explorer.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from veri_jupyter.job import Job

L4 = {"resources.gpu_type": "L4-24GB", "resources.gpu_count": 4}
QWEN = State({"model.base": "Qwen/Qwen3-8B", **L4, "method.global_batch_size": 64, "method.micro_batch_size": "auto"})
ROWS = [{"prompt": "a", "completion": "b"}] * 1204
KEYS = [knob.key for listed in knobs().values() for knob in listed]

_plain = st.none() | st.booleans() | st.integers(-1, 100) | st.floats() | st.text(max_size=8)
VALUES = _plain | st.lists(st.sampled_from(["q_proj", "x", ""]) | st.integers(0, 9), max_size=3)


def _likely(key: str) -> st.SearchStrategy[tuple[str, Any]]:
    """A key with a value that is right more often than not."""
    (found,) = (knob for listed in knobs().values() for knob in listed if knob.key == key)
    by_kind = {"flag": st.booleans(), "number": st.sampled_from([1, 2, 4, 8, 16, 64, 1024, 0.1])}
    right = st.sampled_from(found.choices) if found.kind == "choice" else by_kind.get(found.kind, st.none())
    if key == "model.base":
        right = st.sampled_from(model_ids())
    return st.tuples(st.just(key), right | VALUES)


EDITS = st.lists(st.sampled_from(KEYS).flatmap(_likely), max_size=12)


def edited(edits: list[tuple[str, Any]], state: State = QWEN) -> State:
    """A state after some edits, one by one."""
    for key, value in edits:
        state = state.set({key: value})
    return state


class Pump:
    """Follows each click at once, or when it is told to; what another thread has to say, when it is told to."""

    def __init__(self) -> None:
        self.waits = False
        self._thread = threading.get_ident()
        self.waiting: list[Callable[[], None]] = []
        self.watched: list[Any] = []
        self.tells = False  # else a test sees what went wrong itself

    def post(self, action: Callable[[], None], fail: Callable[[Exception], None] | None = None) -> None:
        self.waiting.append(partial(self._act, action, fail))
        if not self.waits and self._thread == threading.get_ident():
            self.run()

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()

    def watch(self, watcher: Any, pictures: Any) -> None:
        self.watched.append((watcher, pictures))

    def _act(self, action: Callable[[], None], fail: Callable[[Exception], None] | None) -> None:
        try:
            action()
        except Exception as error:
            if not self.tells or fail is None:
                raise
            fail(error)


class Shown:
    """An explorer, and what a person does with it."""

    def __init__(self, state: State = QWEN, **variables: Any) -> None:
        from veri_jupyter.explorer.live import Live

        self.pump = Pump()
        self.started: list[Job] = []
        self.live = Live(state, {"df": ROWS, **variables}, self.pump, self.started.append)  # type: ignore[arg-type]

    def type(self, key: str, value: Any) -> None:
        self.field(key)._control.value = value

    def field(self, key: str) -> Any:
        return self.live._form._fields[key]

    def open(self, head: str) -> None:
        self.live._form._folds[head].head.value = True

    def open_all(self) -> None:
        panel = self.live._panel
        for fold in (*self.live._form._folds.values(), panel._rows_fold, panel._decided_fold, panel._all._fold):
            fold.head.value = True

    def wait(self) -> None:
        """Until what runs beside the page has ended, and is drawn."""
        ours = ("veri-launch", "veri-look", "veri-trace")
        while threads := [each for each in threading.enumerate() if each.name in ours]:
            for thread in threads:
                thread.join(timeout=60)
            self.pump.run()
        self.pump.run()

    @property
    def heads(self) -> list[str]:
        return [fold.title for fold in self.live._form._folds.values()]

    def ways(self) -> list[Any]:
        return [button for button in self.live._panel._buttons if not button.disabled]

    @property
    def verdict(self) -> str:
        return str(self.live._panel._verdict.value)

    @property
    def text(self) -> Any:
        return self.live._panel._text

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.live.state.settings)
