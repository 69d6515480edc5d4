"""Rows that are prepared in a second, as a ratio to TRL's own preparation, and the memory that it takes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from kernel_launcher import samples
from tests.benchmarks.figures import line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 100_000
# ChatML with the marks that TRL needs to train on answers alone.
TEMPLATE = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}\
{% if message['role'] == 'assistant' %}\
{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}\
{% else %}{{ message['content'] + '<|im_end|>\\n' }}{% endif %}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def run(folder: Path, pairs: int) -> Iterator[str]:
    """Prepare the same rows in turn; both must make the same tokens of them."""
    sample = samples.write(folder / "sample", only=("tiny", "data"))
    (sample["tiny"] / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    many, few = (_rows(sample["sft"], folder / f"{count}.jsonl", count) for count in (ROWS, ROWS // 10))
    own, other, ratios, growth = [], [], [], []
    for _ in range(pairs):
        mine, seconds, peak = _measured("ours", sample["tiny"], many)
        its, its_seconds, _ = _measured("theirs", sample["tiny"], many)
        assert mine == its, "both prepare the same rows, tokens and labels"
        own.append(ROWS / seconds)
        other.append(ROWS / its_seconds)
        ratios.append(its_seconds / seconds)
        growth.append((peak - _measured("ours", sample["tiny"], few)[2]) / 1e6)
    yield line(f"preparing {ROWS:,} rows", own, "rows/s", "", 0)
    yield line("  the same with datasets and TRL", other, "rows/s", "", 0)
    yield line("  ratio", ratios, "x", ">= 1")
    yield line("  peak memory above that of a tenth of the rows", growth, "MB", "<= 50", 0)


def _rows(source: Path, path: Path, count: int) -> Path:
    """So many chats, no two alike."""
    chats = [json.loads(chat) for chat in source.read_text(encoding="utf-8").splitlines()]
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            question, *rest = chats[number % len(chats)]["messages"]
            asked = {**question, "content": f"{question['content']} ({number})"}
            file.write(f"{json.dumps({'messages': [asked, *rest]})}\n")
    return path


def _measured(way: str, model: Path, rows: Path) -> tuple[tuple[int, ...], float, int]:
    """What came out (rows, tokens, trained tokens), seconds, and peak bytes of the process."""
    with tempfile.TemporaryDirectory(dir=rows.parent) as folder:
        words = ["-m", "tests.benchmarks.preparing", way, str(model), str(rows), folder]
        done = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True)
    *counts, seconds, peak = done.stdout.split("\n")[-2].split()
    return tuple(map(int, counts)), float(seconds), int(peak)
