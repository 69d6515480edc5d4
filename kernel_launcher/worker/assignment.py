"""What one rank was told: its place among the ranks, and the job."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kernel_launcher.planner import Plan
from kernel_launcher.spec import JobSpec

if TYPE_CHECKING:
    from kernel_launcher.protocol.paths import RankDir, RunDir

_LAUNCH_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank's place, as torch.distributed.elastic put it into the environment."""

    rank: int
    local_rank: int
    world_size: int
    attempt: int

    @classmethod
    def from_environment(cls) -> Rank:
        """This process's place."""
        env = os.environ
        return cls(
            rank=int(env["RANK"]),
            local_rank=int(env["LOCAL_RANK"]),
            world_size=int(env["WORLD_SIZE"]),
            attempt=int(env.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that speaks for all."""
        return self.rank == 0

    def folder(self, run: RunDir) -> RankDir:
        """Where this rank leaves its files."""
        return run.rank(self.rank, self.attempt)

    def prepare_environment(self) -> None:
        """Set what the libraries read from the environment; before any of them is imported."""
        os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # TRL reports each training to the hub otherwise
        os.environ["TQDM_DISABLE"] = "1"  # a bar in a log is a line of a thousand columns
        if self.world_size > 1:
            # Read where Unsloth is imported, by whatever code: its reentrant checkpointing breaks DDP otherwise.
            os.environ.setdefault("UNSLOTH_USE_NEW_MODEL", "1")
        else:
            # Otherwise accelerate opens a process group of one, and the Trainer splits batches over all visible GPUs.
            for name in _LAUNCH_VARIABLES:
                os.environ.pop(name, None)
            os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]


@dataclass(frozen=True, slots=True)
class DataOrigin:
    """Where the rows are: ``path`` for a file or the notebook's snapshot, ``id`` on the hub."""

    kind: Literal["file", "hub", "snapshot"]
    path: str | None
    id: str | None
    digest: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """One rank's work: the spec says what was asked, the plan what was decided."""

    run: RunDir
    rank: Rank
    spec: JobSpec
    plan: Plan
    data: DataOrigin

    @classmethod
    def read(cls, run: RunDir, rank: Rank) -> Assignment:
        """The work in a run folder.

        Raises:
            OSError: A file is missing.
            ValueError: A file is not what the launcher writes.
        """
        asked = json.loads(run.spec.read_text(encoding="utf-8"))
        return cls(
            run=run,
            rank=rank,
            spec=JobSpec.from_sections(asked["spec"]),
            plan=Plan.from_json(json.loads(run.plan.read_text(encoding="utf-8"))),
            data=DataOrigin(**asked["data"]),
        )
