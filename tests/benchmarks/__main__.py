"""``make bench``: figures, not verdicts. Ratios are measured in turn, pair by pair, because machines are noisy.

python -m tests.benchmarks [NAME ...] [--pairs N]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from tests.benchmarks import dashboard, data, explorer, fold, load, overhead, planner, ranks, sharded, training

BENCHMARKS = {
    "load": load.run,
    "fold": fold.run,
    "dashboard": dashboard.run,
    "planner": planner.run,
    "data": data.run,
    "explorer": explorer.run,
    "overhead": overhead.run,
    "training": training.run,
    "ranks": ranks.run,
    "sharded": sharded.run,
}


def main() -> None:
    """Run the named benchmarks, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], help="which (default: all)")
    parser.add_argument("--pairs", type=int, default=5, help="measurements of each side")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="veri-bench-") as folder:
        os.environ["VERI_HOME"] = str(Path(folder) / "home")
        for name in arguments.names or BENCHMARKS:
            for line in BENCHMARKS[name](Path(folder), arguments.pairs):
                print(line, flush=True)


main()
