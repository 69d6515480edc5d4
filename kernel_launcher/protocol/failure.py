"""Why a run ended: what each rank recorded, and the one verdict made of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from kernel_launcher.protocol.files import read_json, readable, write_json

if TYPE_CHECKING:
    from pathlib import Path

Attribution = Literal["customer", "platform", "pending"]
TAIL_LINES = 200
EXIT_DISK_FULL = 74  # of a rank whose disk is so full that it could not even leave its record (EX_IOERR)
# Failures whose text says what is wrong and what to do: our own frames below it would only hide it.
SELF_EXPLANATORY = frozenset(
    {"config_error", "data_error", "dataset_format_incompatible", "disk_full", "empty_labels", "non_finite_loss"}
)
_MOST_HEADLINE = 600  # what is wrong with the rows, and the way out


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """What a rank wrote about its own failure, before it ended.

    Attributes:
        rank: Global rank.
        local_rank: Rank on its node.
        world_size: Number of ranks.
        code: The failure code, where the rank knows it; else None.
        exception: Class of the exception.
        text: Its message.
        traceback: As Python prints it.
        phase: What the rank was doing.
        step: The last optimizer step that it finished.
        time_ns: Wall clock in nanoseconds: which rank failed first.
    """

    rank: int
    local_rank: int
    world_size: int
    code: str | None
    exception: str
    text: str
    traceback: str
    phase: str
    step: int
    time_ns: int

    def write(self, path: Path) -> None:
        """Write it durably (temporary file, fsync, rename)."""
        write_json(path, asdict(self), durable=True)

    @classmethod
    def read(cls, path: Path) -> RankRecord | None:
        """The record in a file, or None if there is none that can be read."""
        value = read_json(path)
        try:
            return cls(**value) if isinstance(value, dict) else None
        except TypeError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Failure:
    """The verdict on a failed job.

    Attributes:
        code: One word, such as ``oom``.
        message: Which rank failed and how; then the plan line; then the traceback.
        attribution: Whose it is.
        log_tail: The last lines of the log of the rank that failed first.
        rank: That rank; None where no rank is at fault.
    """

    code: str
    message: str
    attribution: Attribution
    log_tail: tuple[str, ...] = ()
    rank: int | None = None

    def __repr__(self) -> str:
        where = "" if self.rank is None else f" on rank {self.rank}"
        return f"<Failure {self.code}{where} ({self.attribution}): {self.headline}>"

    @property
    def headline(self) -> str:
        """The message's first line, short enough for a title."""
        return readable(self.message.partition("\n")[0], _MOST_HEADLINE)

    def to_json(self) -> dict[str, Any]:
        """The failure as one JSON object."""
        return asdict(self) | {"log_tail": list(self.log_tail)}

    @classmethod
    def from_json(cls, value: Any) -> Failure | None:
        """The failure in an event or a status file; unknown fields are ignored."""
        if not isinstance(value, dict) or not {"code", "message", "attribution"} <= value.keys():
            return None
        return cls(
            code=str(value["code"]),
            message=str(value["message"]),
            attribution=value["attribution"],
            log_tail=tuple(value.get("log_tail") or ()),
            rank=value.get("rank"),
        )
