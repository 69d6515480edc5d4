"""The logs of a run, for reading: the last lines, without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_launcher.protocol.files import readable, tail
from kernel_launcher.secrets import redact

if TYPE_CHECKING:
    from kernel_launcher.protocol.paths import RankDir, RunDir


def rank_log(rank: RankDir, lines: int) -> list[str]:
    """The last lines of a rank: its errors, after as much of its output as there is room for."""
    errors = tail(rank.stderr, lines)
    output = tail(rank.stdout, lines - len(errors))
    return [readable(redact(line)) for line in (*output, *errors)]


def nothing_logged(rank: int | None) -> str:
    """What to say where there is no line."""
    return "nothing was written yet." if rank is None else f"rank {rank} has written nothing."


def job_log(run: RunDir, lines: int, attempt: int = 0) -> list[str]:
    """The last lines of the launcher, then of each rank, each under a heading; files without a line are left out."""
    parts = [("launcher", [readable(redact(line)) for line in tail(run.launcher_log, lines)])]
    parts += [(f"rank {number}", rank_log(folder, lines)) for number, folder in run.ranks(attempt)]
    return [line for name, found in parts if found for line in (f"== {name} ==", *found)]
