"""One rank against two, as the page's throughput table has it: what another one is worth, by size of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_launcher.facts.machine import this_machine
from kernel_launcher.samples import write
from tests.benchmarks.figures import line
from tests.benchmarks.training import rate_of_ours

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SETTINGS = {"max_seq_length": 256, "max_steps": 6}


def run(folder: Path, pairs: int) -> Iterator[str]:
    """LoRA on SmolLM2, micro batch 1 and 8, in turn."""
    if this_machine().slots < 2:
        yield "one rank against two: not run, this machine has room for one rank"
        return
    write(folder / "sample", only=("smollm2", "data"))
    model, data = folder / "sample" / "smollm2", folder / "sample" / "sft.jsonl"
    for batch in (1, 8):
        gains = []
        for number in range(pairs):
            rates = {}
            for ranks in (1, 2):
                place = folder / f"ranks-{batch}-{ranks}-{number}"
                rates[ranks], _ = rate_of_ours(place, model, data, ranks, micro_batch_size=batch, **_SETTINGS)
            gains.append(rates[2] / rates[1])
            yield f"  micro batch {batch}: {rates[1]:.1f} tokens/s on one rank, {rates[2]:.1f} on two"
        yield line(f"tokens/s of two ranks over one, micro batch {batch}", gains, "x", "reported")
