"""Models and data sets from the hub: which files, how far, and what is said when there are none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.worker import transfer
from kernel_launcher.worker.download import needed_files
from kernel_launcher.worker.transfer import Progress
from tests.hub import COMMIT, TOKEN, hub

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = bytes(range(256)) * 40_000
REPOSITORY = {
    "config.json": b"{}",
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"[]",
    "onnx/model.onnx": b"x" * 1000,
    "pytorch_model.bin": b"y" * 1000,
}

# The client reads its endpoint when it is imported, hence a process of its own.
FETCH = """
import json, sys
from kernel_launcher.errors import VeriError
from kernel_launcher.worker.download import fetch
events, warnings = [], []
try:
    found = fetch(sys.argv[1], None, with_code=False, report=lambda **e: events.append(e), warn=warnings.append)
    result = {"folder": str(found.folder), "revision": found.revision}
except VeriError as error:
    result = {"error": error.to_json()}
print(json.dumps(result | {"events": events, "warnings": warnings}))
"""


READ = """
import json, sys
from kernel_launcher.errors import VeriError
from kernel_launcher.worker.hub_rows import hub_rows
events = []
try:
    result = {"rows": list(hub_rows(sys.argv[1], "train", report=lambda **e: events.append(e)))}
except VeriError as error:
    result = {"error": error.to_json()}
print(json.dumps(result | {"events": events}))
"""


def fetch(repository: str, home: Path, endpoint: str, program: str = FETCH, **more: str) -> dict[str, Any]:
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_TOKEN": TOKEN} | more
    command = [sys.executable, "-c", program, repository]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert TOKEN not in done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_model_is_downloaded_once_with_progress(tmp_path: Path) -> None:
    """What loading reads and no more; nothing twice; without a network the copy does."""
    with hub(REPOSITORY) as endpoint:
        first = fetch("team/tiny", tmp_path, endpoint)
        second = fetch("team/tiny", tmp_path, endpoint)
    offline = fetch("team/tiny", tmp_path, endpoint)

    folder = tmp_path / "hub" / "models--team--tiny" / "snapshots" / COMMIT
    assert (str(folder), COMMIT) == (first["folder"], first["revision"])
    assert {"config.json", "model.safetensors", "tokenizer.json"} == {path.name for path in folder.iterdir()}
    assert WEIGHTS == (folder / "model.safetensors").read_bytes()
    total = sum(len(REPOSITORY[path.name]) for path in folder.iterdir())
    assert (total, total) == (first["events"][-1]["done_bytes"], first["events"][-1]["total_bytes"])
    assert first["events"][-1]["bytes_per_second"] > 0
    assert [] == second["events"]
    assert first["folder"] == second["folder"] == offline["folder"]
    assert "the copy in the cache is used" in offline["warnings"][0]


def test_a_data_set_is_downloaded_once_with_progress(tmp_path: Path) -> None:
    """Bytes of all that the library reads, and of nothing else; nothing twice; without a network the copy does."""
    rows = [{"text": f"row {number}"} for number in range(20_000)]
    files = {
        "README.md": b"---\nlicense: mit\n---\n",
        "data/train.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode(),
        "data/test.jsonl": b'{"text": "z"}\n',
        "raw/pictures.zip": b"x" * 1000,
    }
    with hub(files) as endpoint:
        first = fetch("team/tiny", tmp_path, endpoint, READ)
        second = fetch("team/tiny", tmp_path, endpoint, READ)
    offline = fetch("team/tiny", tmp_path, endpoint, READ, HF_HUB_OFFLINE="1")

    assert rows == first["rows"] == second["rows"] == offline["rows"]
    total = len(files["data/train.jsonl"]) + len(files["data/test.jsonl"])
    assert (total, total) == (first["events"][-1]["done_bytes"], first["events"][-1]["total_bytes"])
    assert first["events"][-1]["bytes_per_second"] > 0
    assert [] == second["events"] == offline["events"]


def test_a_data_set_without_access_is_told_without_the_token(tmp_path: Path) -> None:
    """The reason is the hub's; without a network it is the network's."""
    with hub({}) as endpoint:
        gated = fetch("team/gated", tmp_path, endpoint, READ)["error"]
    offline = fetch("team/other", tmp_path, endpoint, READ, HF_HUB_OFFLINE="1")["error"]
    assert "data_error" == gated["code"] == offline["code"]
    assert "'train' of team/gated cannot be had from the hub" in gated["message"]
    taken_for = (
        "no file or folder beside the notebook or the job file is called 'team/other', so a data set on the hub"
    )
    assert offline["message"].startswith(taken_for)
    assert "'train' of team/other cannot be had from the hub: ConnectionError" in offline["message"]


def test_no_access_and_no_network_are_told_apart_and_without_the_token(tmp_path: Path) -> None:
    """The reason is the hub's, the token is nobody's."""
    with hub(REPOSITORY) as endpoint:
        gated = fetch("team/gated", tmp_path, endpoint)["error"]
    offline = fetch("team/other", tmp_path, endpoint)["error"]
    assert "model_load_error" == gated["code"] == offline["code"]
    assert "team/gated cannot be had from the hub: GatedRepoError" in gated["message"]
    assert "team/other cannot be had from the hub: ConnectError" in offline["message"]


@pytest.mark.parametrize(
    ("expected", "names"),
    [
        (["config.json", "model.safetensors"], ["config.json", "model.safetensors", "pytorch_model.bin"]),
        (
            ["config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json"],
            [
                "config.json",
                "model-00001-of-00002.safetensors",
                "model.safetensors.index.json",
                "consolidated.safetensors",
            ],
        ),
        (["pytorch_model.bin"], ["pytorch_model.bin", "original/consolidated.00.pth", "training_args.bin"]),
        (["tokenizer.model", "weights.safetensors"], ["weights.safetensors", "tokenizer.model", "README.md"]),
        (["chat_template.jinja"], ["chat_template.jinja", "modeling_x.py", "flax_model.msgpack"]),
    ],
)
def test_one_set_of_weights_is_taken(expected: list[str], names: list[str]) -> None:
    """Many repositories ship the same weights several times; safetensors come before bin."""
    assert expected == needed_files(names, with_code=False)


def test_code_is_fetched_only_where_it_may_run() -> None:
    """trust_remote_code needs the modules, in folders too."""
    assert ["a/b.py", "modeling_x.py"] == needed_files(["modeling_x.py", "a/b.py"], with_code=True)
    assert [] == needed_files(["modeling_x.py", "a/b.py"], with_code=False)


def test_progress_adds_up_files_and_tells_the_present_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """About one event a second; bytes of an earlier try count as done, but not for the rate."""
    clock = iter([0.0, 0.0, 0.5, 2.0, 2.1, 4.0])
    monkeypatch.setattr(transfer.time, "monotonic", lambda: next(clock))
    events: list[dict[str, Any]] = []
    progress = Progress(1000, lambda **event: events.append(event))
    progress.add("a", 300, fetched=False)
    progress.add("a", 100)
    progress.add("b", 100)
    progress.add("b", 100)
    progress.add("a", 400)
    done = [(event["file"], event["done_bytes"], event["bytes_per_second"]) for event in events]
    assert [("b", 500, 100), ("a", 1000, 175)] == done
