"""One preparation of chat rows, in a process of its own; prints rows, tokens, trained tokens, seconds and peak bytes.

python -m tests.benchmarks.preparing ours|theirs MODEL ROWS FOLDER
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from transformers import AutoTokenizer


def ours(tokenizer: Any, rows: Path, folder: Path) -> tuple[int, int, int]:
    """As rank 0 of a job does it, linter and all."""
    from kernel_launcher.data.lint import ModelTokens, RunLinter
    from kernel_launcher.data.rows.columns import Columns
    from kernel_launcher.data.rows.source import read_rows
    from kernel_launcher.data.training.prepare import prepare
    from kernel_launcher.spec.fields import Method
    from kernel_launcher.worker.codec import TransformersCodec

    method, codec = Method(max_seq_length=1024), TransformersCodec(tokenizer)
    linter = RunLinter(codec, method, model=ModelTokens.of(Path(tokenizer.name_or_path)), source="")
    write, lost = folder / "train.arrow", folder / "lost.jsonl"
    report = prepare(read_rows(rows), Columns(), method, codec, write=write, lost=lost, inspector=linter)
    return report.kept, report.tokens, report.trained_tokens


def theirs(tokenizer: Any, rows: Path, folder: Path) -> tuple[int, int, int]:
    """As TRL's trainer does it in its constructor, with as many processes as it takes by default."""
    import datasets
    import pyarrow.compute as pc
    from trl import SFTConfig, SFTTrainer

    args = SFTConfig(
        output_dir=str(folder), assistant_only_loss=True, max_length=1024, use_cpu=True, bf16=False, report_to="none"
    )
    trainer = SimpleNamespace(_tokenizer=tokenizer, chat_template=None, completion_only_loss=False)
    data = datasets.load_dataset("json", data_files=str(rows), split="train", cache_dir=str(folder))
    # The method alone, without the model that the constructor wants.
    made = SFTTrainer._prepare_dataset(trainer, data, tokenizer, args, False, None, "train")
    ids, labels = (made.data.column(name).combine_chunks().flatten() for name in ("input_ids", "labels"))
    return len(made), len(ids), pc.sum(pc.not_equal(labels, -100)).as_py()


def main() -> None:
    """Measure the way that was asked for."""
    way, model, rows, folder = sys.argv[1:]
    os.environ |= {"TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "true", "HF_HUB_OFFLINE": "1"}
    tokenizer = AutoTokenizer.from_pretrained(model)
    start = time.perf_counter()
    counts = {"ours": ours, "theirs": theirs}[way](tokenizer, Path(rows), Path(folder))
    seconds = time.perf_counter() - start
    print(*counts, seconds, _peak_bytes())


def _peak_bytes() -> int:
    """Of this program: what getrusage tells begins with the peak of the process that started it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


main()
