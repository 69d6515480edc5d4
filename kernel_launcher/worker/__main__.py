"""``python -m kernel_launcher.worker RUN_DIR``: one rank of one job."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_launcher.protocol.events import EventWriter
from kernel_launcher.protocol.failure import EXIT_DISK_FULL
from kernel_launcher.protocol.paths import RunDir
from kernel_launcher.worker import watch
from kernel_launcher.worker.assignment import Assignment, Rank
from kernel_launcher.worker.collector import collector_paused
from kernel_launcher.worker.failures import PeerFailed, code_of, record_of, settled
from kernel_launcher.worker.output import redact_output
from kernel_launcher.worker.reporter import Reporter

if TYPE_CHECKING:
    from kernel_launcher.protocol.failure import RankRecord
    from kernel_launcher.protocol.paths import RankDir


def main(run_dir: str) -> int:
    """Do one rank's part of a job; returns the exit code."""
    run, rank = RunDir(Path(run_dir).absolute()), Rank.from_environment()
    folder = rank.folder(run)
    reporter = Reporter(EventWriter(folder.events, "rank", attempt=rank.attempt, rank=rank.rank))
    _show_stacks_on_request(folder)
    watch.start(run)
    rank.prepare_environment()
    warnings.simplefilter("ignore", FutureWarning)  # between the libraries: who reads the log can do nothing about it
    try:
        with collector_paused():
            from kernel_launcher.worker.train import train

        train(Assignment.read(run, rank), reporter)
    except PeerFailed:
        return 1
    except BaseException as error:  # sys.exit in a model's own code must leave a record, too
        return _leave(record_of(settled(error), rank, phase=reporter.phase, step=reporter.step), folder)
    finally:
        reporter.close()
    return 0


def _leave(record: RankRecord, folder: RankDir) -> int:
    """Leave the record, or else say with the exit code why there is none."""
    exit_code = 1
    complaint = ""
    try:
        record.write(folder.failure)  # first: once one rank has failed, the agent ends the others
    except OSError as error:
        complaint = f"no failure record could be written: {error}\n"
        if code_of(error) == "disk_full":
            exit_code = EXIT_DISK_FULL
    with suppress(OSError):  # the log may lie on the same full disk
        sys.stderr.write(f"{complaint}{record.traceback}")
    return exit_code


def _show_stacks_on_request(folder: RankDir) -> None:
    """Leave the stacks of all threads in a file on SIGUSR1, and on standard error in a crash."""
    faulthandler.enable()
    stacks = os.open(folder.stacks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)


if __name__ == "__main__":
    redact_output()
    exit_code = main(sys.argv[1])
    watch.end_children()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a full disk must not change the exit code
            stream.flush()
    # Not sys.exit: after a failed collective the interpreter's own end can hang in a communicator's destructor.
    os._exit(exit_code)
