"""The verdict: from the ranks' own records and exit codes to one failure. Pure.

Cause class first, clock second: an error that only says that another rank has gone is never the root; among the rest
the rank that failed first is.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from kernel_launcher.protocol.failure import EXIT_DISK_FULL, SELF_EXPLANATORY, Attribution, Failure, RankRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PEER_ERROR = re.compile(
    r"connection (closed|reset|refused)|broken pipe|\b(gloo|nccl|c10d|tcpstore)\b|socket timeout|process group",
    re.IGNORECASE,
)
_COLLECTIVE_CLASSES = ("DistBackendError", "DistNetworkError", "DistStoreError", "DistError")

ATTRIBUTION: dict[str, Attribution] = {
    "oom": "customer",
    "host_oom": "customer",
    "disk_full": "customer",
    "non_finite_loss": "customer",
    "empty_labels": "customer",
    "data_error": "customer",
    "dataset_format_incompatible": "customer",
    "model_load_error": "customer",
    "dependency_error": "customer",
    "config_error": "customer",
    "user_exit": "customer",
    "early_exit": "customer",
    "artifact_invalid": "platform",
    "plan_not_kept": "platform",
    "storage_error": "platform",
    "preempted": "platform",
    "launcher_lost": "platform",
    "killed_externally": "pending",
    "native_crash": "pending",
    "distributed_error": "pending",
}
_CRASHES = {-signal.SIGSEGV, -signal.SIGILL, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE}


def attribution_of(code: str, world_size: int) -> Attribution:
    """Whose a failure is; an exception in training is the customer's on one GPU, and open on several."""
    return ATTRIBUTION.get(code, "customer" if world_size == 1 else "pending")


def judge(
    records: Sequence[RankRecord],
    exits: Mapping[int, int],
    *,
    world_size: int,
    plan_line: str,
    log_tail: Callable[[int], Sequence[str]],
) -> Failure:
    """Why the ranks failed.

    Args:
        records: What ranks wrote themselves.
        exits: Exit codes of ranks that did not end well, in the order they were seen.
        world_size: Number of ranks.
        plan_line: The plan, in one line.
        log_tail: The last log lines of a rank.
    """
    own = sorted((r for r in records if not _is_peer_error(r)), key=lambda record: record.time_ns)
    if own:
        return _recorded(own[0], own[0].code or "training_error", plan_line, log_tail)
    recorded = {record.rank for record in records}
    silent = {rank: code for rank, code in exits.items() if rank not in recorded}
    first_seen = next(iter(exits), None)
    for rank, code in silent.items():
        # Once one rank has failed the agent ends the others with SIGTERM: of those it is no cause.
        if code != -signal.SIGTERM or rank == first_seen:
            return _silent(rank, code, world_size, plan_line, log_tail)
    if records:
        first = min(records, key=lambda record: record.time_ns)
        return _recorded(first, "distributed_error", plan_line, log_tail)
    for rank, code in silent.items():
        return _silent(rank, code, world_size, plan_line, log_tail)
    return Failure(
        code="training_error",
        message=f"the ranks ended without a result and without an error\n{plan_line}",
        attribution=attribution_of("training_error", world_size),
    )


def _is_peer_error(record: RankRecord) -> bool:
    if record.code is not None:
        return False
    return record.exception in _COLLECTIVE_CLASSES or (
        record.exception == "RuntimeError" and bool(_PEER_ERROR.search(record.text))
    )


def left_early(rank: int, *, world_size: int, plan_line: str, log_tail: Callable[[int], Sequence[str]]) -> Failure:
    """The failure of a rank that left with exit code 0 while there was no model yet."""
    return _silent(rank, 0, world_size, plan_line, log_tail)


def _recorded(record: RankRecord, code: str, plan_line: str, log_tail: Callable[[int], Sequence[str]]) -> Failure:
    head = f"{_who(record.rank, record.local_rank, record.world_size)} failed: {record.exception}: {record.text}"
    trace = [] if code in SELF_EXPLANATORY else [record.traceback]
    return Failure(
        code=code,
        message="\n".join([head, plan_line, *trace]).rstrip(),
        attribution=attribution_of(code, record.world_size),
        log_tail=tuple(log_tail(record.rank)),
        rank=record.rank,
    )


def _silent(
    rank: int, code: int, world_size: int, plan_line: str, log_tail: Callable[[int], Sequence[str]]
) -> Failure:
    if code in _CRASHES:
        kind, how = "native_crash", f"crashed with {signal.Signals(-code).name}"
    elif code == -signal.SIGTERM:
        kind, how = "preempted", "was asked to end by a SIGTERM from outside"
    elif code == -signal.SIGKILL:
        kind, how = "killed_externally", "was killed (SIGKILL) from outside; the system does so when memory runs out"
    elif code < 0:
        kind, how = "killed_externally", f"was ended by signal {-code}"
    elif code == EXIT_DISK_FULL:
        kind, how = "disk_full", "found its disk full, and could not even leave its record"
    elif code == 0:
        kind, how = (
            "early_exit",
            "left with exit code 0 before there was a model (os._exit or the like in your own code?)",
        )
    else:
        kind, how = "training_error", f"ended with exit code {code} and left no record"
    return Failure(
        code=kind,
        message=f"{_who(rank, rank, world_size)} {how}\n{plan_line}",
        attribution=attribution_of(kind, world_size),
        log_tail=tuple(log_tail(rank)),
        rank=rank,
    )


def _who(rank: int, local_rank: int, world_size: int) -> str:
    return f"rank {rank}/{world_size} (node 0, local_rank {local_rank})"
