"""The ranks under torch.distributed.elastic: the only file that knows it."""

from __future__ import annotations

import os
import signal
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo, rendezvous_handler_registry
from torch.distributed.launcher.api import LaunchConfig, launch_agent

if TYPE_CHECKING:
    from kernel_launcher.protocol.paths import RunDir

_LOOPBACK = "127.0.0.1"
_BACKEND = "veri-loopback"


@dataclass(frozen=True, slots=True)
class Exits:
    """How the ranks ended: exit codes by rank of those that did not end well, in the order they were seen."""

    codes: dict[int, int]


class Signalled(Exception):
    """The launcher got a signal while the ranks ran; they have been ended."""


def run_ranks(run: RunDir, *, world_size: int, job_id: str, attempt: int, grace_seconds: int) -> Exits:
    """Start the ranks and wait for them; if one fails, the others are ended.

    Must be called in the main thread: elsewhere the agent installs no signal handlers, and a signal would orphan the
    ranks.

    Raises:
        Signalled: A signal came; the ranks were asked to end, and after ``grace_seconds`` were made to.
    """
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=world_size,
        run_id=job_id,
        rdzv_backend=_BACKEND,
        signals_to_handle="SIGTERM,SIGINT",
        max_restarts=0,  # the default of 3 would repeat an out-of-memory run four times
        monitor_interval=0.2,
        logs_specs=_RunDirLogs(run, attempt),
        shutdown_timeout=grace_seconds,
    )
    # A script, not a function: function entry points report one failure only.
    args = ["-u", "-P", "-m", "kernel_launcher.worker", str(run.root)]
    try:
        launch_agent(config, sys.executable, args)
    except ChildFailedError as error:
        return Exits({rank: failure.exitcode for rank, failure in error.failures.items()})
    except SignalException as error:
        raise Signalled(str(error)) from None
    finally:
        # The agent's handlers would raise in whatever comes next; the ranks are gone, there is nothing left to ask.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    return Exits({})


class _Loopback(RendezvousHandler):
    """The store where the ranks of one node meet, listening on the loopback address only.

    The c10d back end would do, but its store listens on every interface; a socket that is bound beforehand does not.
    """

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._run_id = parameters.run_id
        listener = socket.create_server((_LOOPBACK, 0))
        self._port = listener.getsockname()[1]
        self._store = TCPStore(
            _LOOPBACK, self._port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )

    @property
    def use_agent_store(self) -> bool:
        return True

    def get_backend(self) -> str:
        return _BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        store = PrefixStore(self._run_id, self._store)
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo(_LOOPBACK, self._port))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        return True


rendezvous_handler_registry.register(_BACKEND, _Loopback)


class _RunDirLogs(LogsSpecs):
    """Logs of each rank where the run folder has them; elastic's own names cannot be predicted."""

    def __init__(self, run: RunDir, attempt: int) -> None:
        super().__init__(log_dir=str(run.root))
        self._run = run
        self._attempt = attempt

    @property
    def root_log_dir(self) -> str:
        return str(self._run.root)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        stdouts, stderrs = {}, {}
        for rank, env in envs.items():
            folder = self._run.rank(rank, self._attempt)
            folder.root.mkdir(parents=True, exist_ok=True)
            stdouts[rank], stderrs[rank] = str(folder.stdout), str(folder.stderr)
            # Our ranks write their own record; a truncated one of elastic's would crash the agent.
            env["TORCHELASTIC_ERROR_FILE"] = ""
        return LogsDest(stdouts, stderrs, {}, {}, dict.fromkeys(envs, os.devnull), os.devnull, os.devnull)
