"""Microseconds that reporting adds to the training thread, per optimizer step, in a real run of one rank."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median, quantiles
from typing import TYPE_CHECKING

from kernel_launcher.launcher import client
from kernel_launcher.samples import write
from tests.process import jobs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEPS = 400
_WARM = 20

# The worker itself, in a process of its own, with a clock around each thing of ours that the training thread calls.
TIMED = """
import json, sys, time
from pathlib import Path
from kernel_launcher.protocol.liveness import LauncherLock
from kernel_launcher.protocol.paths import RunDir
from kernel_launcher.worker import learning, steps

spent = {"now": 0.0}
each_step = []

def timed(cls, name):
    inner = getattr(cls, name)
    def outer(self, *args, **kwargs):
        start = time.perf_counter()
        try:
            return inner(self, *args, **kwargs)
        finally:
            spent["now"] += time.perf_counter() - start
            if name == "on_log":
                each_step.append(spent["now"])
                spent["now"] = 0.0
    setattr(cls, name, outer)

timed(steps.TokenCount, "begin")
timed(steps.StepReporter, "on_step_begin")
timed(steps.StepReporter, "on_log")
timed(learning.Learning, "on_pre_optimizer_step")
timed(learning.Learning, "on_optimizer_step")
run = RunDir(Path(sys.argv[1]))
LauncherLock(run)  # a rank without a launcher ends itself
from kernel_launcher.worker.__main__ import main
try:
    main(sys.argv[1])
finally:
    Path(sys.argv[2]).write_text(json.dumps(each_step))
"""


def run(folder: Path, _: int) -> Iterator[str]:
    """Time every step of a run that does little else."""
    paths = write(folder / "sample", only=("tiny", "data"))
    work = folder / "overhead"
    work.mkdir()
    entry = jobs.start(work, paths["tiny"], paths["sft"], gpu_count=1, max_steps=STEPS)
    client.stop(entry, now=True)
    rank = entry.run.rank(0)
    rank.root.mkdir(parents=True, exist_ok=True)
    figures = work / "figures.json"
    environment = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", TIMED, entry.root, str(figures)]
    with rank.stdout.open("w") as log:
        subprocess.run(command, check=True, env=jobs.environment(environment), stdout=log, stderr=log)
    times = [seconds * 1e6 for seconds in json.loads(figures.read_text())][_WARM:]
    yield (
        f"{'reporting in the training thread, 99th percentile':58} {quantiles(times, n=100)[98]:10.0f} "
        f"{'µs':6} goal {'< 1000':9} (median {median(times):.0f}, {len(times)} steps)"
    )
