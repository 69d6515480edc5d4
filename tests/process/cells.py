"""``python -m tests.process.cells RUN_DIR…``: one rank of several jobs, one after the other in one process.

Importing the libraries takes longer than a job of the tiny model; the ranks meet anew for each.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path

from kernel_launcher.protocol.events import EventWriter
from kernel_launcher.protocol.paths import RunDir
from kernel_launcher.worker.assignment import Assignment, Rank
from kernel_launcher.worker.failures import PeerFailed, record_of
from kernel_launcher.worker.reporter import Reporter


def main(run_dirs: list[str]) -> int:
    """Do this rank's part of each job; returns the exit code."""
    faulthandler.register(signal.SIGUSR1)  # stacks into the log, when a rank hangs
    rank = Rank.from_environment()
    rank.prepare_environment()
    from kernel_launcher.worker.train import train

    port = int(os.environ["MASTER_PORT"])
    for number, run_dir in enumerate(run_dirs):
        # A store of its own: a rank that comes early would otherwise meet the one of the job before.
        os.environ["MASTER_PORT"] = str(port + number)
        run = RunDir(Path(run_dir))
        folder = rank.folder(run)
        folder.root.mkdir(parents=True, exist_ok=True)
        reporter = Reporter(EventWriter(folder.events, "rank", rank=rank.rank))
        try:
            train(Assignment.read(run, rank), reporter)
        except PeerFailed:
            return 1
        except Exception as error:
            record_of(error, rank, phase=reporter.phase, step=reporter.step).write(folder.failure)
            raise
        finally:
            reporter.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
