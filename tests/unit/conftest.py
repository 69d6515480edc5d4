"""What several unit tests start and end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kernel_launcher.launcher import client
from kernel_launcher.launcher.client import Launched
from kernel_launcher.preflight import environment, trace
from kernel_launcher.protocol.files import read_json
from kernel_launcher.protocol.liveness import find_process
from tests.unit.toys import ANSWERS, interpreter, prepared
from tests.unit.trace_toys import ANSWER, Answering

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_launcher.protocol import index


@pytest.fixture
def jobs(tmp_path):
    """Starts jobs on a stand-in launcher; what still runs at the end is killed."""
    started: list[index.Entry] = []

    def start(then: str = ANSWERS, *, run_dir: Path | None = None, again: bool = False, **settings: object):
        ready = prepared(python=str(interpreter(tmp_path, then)), **settings)
        outcome = client.start(ready, base_dir=tmp_path, run_dir=run_dir, again=again)
        if isinstance(outcome, Launched):
            started.append(outcome.entry)
        return outcome

    yield start
    for entry in started:
        process = find_process(read_json(entry.run.lock))
        if process is not None:
            process.kill()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """Stands for the process that measures a step."""
    stand_in = Answering(json.dumps(ANSWER))
    monkeypatch.setattr(trace.subprocess, "run", stand_in)
    monkeypatch.setattr(environment, "_version", lambda _: "1")
    return stand_in
