"""What tests of a measured step share: a model that the memory model does not know, and a stand-in that answers."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

# Wide enough for the layers to show in GiB with two decimals, and cheap: the tracker computes nothing.
EXPERTS = {
    "model_type": "qwen3_moe", "vocab_size": 512, "hidden_size": 512, "intermediate_size": 1024,
    "moe_intermediate_size": 1024, "num_hidden_layers": 10, "num_attention_heads": 8, "num_key_value_heads": 2,
    "head_dim": 64, "num_experts": 2, "num_experts_per_tok": 1, "max_position_embeddings": 512,
}  # fmt: skip
ANSWER = {"phases": {"layer forward": 3 * 2**30, "end of backward": 2**30}, "layers": [4, 5], "of": 10}


class Answering:
    """A stand-in for the process that measures: what it was asked, and what it says."""

    def __init__(self, stdout: str) -> None:
        self.stdout = stdout
        self.asked: list[dict[str, Any]] = []

    # ``input`` is what subprocess.run calls it.
    def __call__(self, command: list[str], *, input: str, **_: Any) -> subprocess.CompletedProcess[str]:  # noqa: A002
        assert command[1:] == ["-P", "-m", "kernel_launcher.tracker"]
        self.asked.append(json.loads(input))
        return subprocess.CompletedProcess(command, 0, self.stdout, "first\nthe last line")


def folder(path: Path, config: dict[str, Any]) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path
