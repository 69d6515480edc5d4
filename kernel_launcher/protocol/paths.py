"""One class knows every path of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class RankDir:
    """The files of one rank in one attempt."""

    root: Path

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def stdout(self) -> Path:
        return self.root / "stdout.log"

    @property
    def stderr(self) -> Path:
        return self.root / "stderr.log"

    @property
    def stacks(self) -> Path:
        """The stacks of all threads, added at each SIGUSR1."""
        return self.root / "stacks.log"

    @property
    def failure(self) -> Path:
        return self.root / "failure.json"

    @property
    def ready(self) -> Path:
        """There once this rank holds the weights that it reads for the others."""
        return self.root / "ready"


@dataclass(frozen=True, slots=True)
class RunDir:
    """The folder of one job."""

    root: Path

    @property
    def spec(self) -> Path:
        """Who the job is and what was asked."""
        return self.root / "spec.json"

    @property
    def plan(self) -> Path:
        """What was decided."""
        return self.root / "plan.json"

    @property
    def status(self) -> Path:
        """Where the job stands; rewritten by the launcher every few seconds."""
        return self.root / "status.json"

    @property
    def lock(self) -> Path:
        """Held by the launcher as long as it lives."""
        return self.root / "launcher.lock"

    @property
    def launcher_log(self) -> Path:
        return self.root / "launcher.log"

    @property
    def launcher_events(self) -> Path:
        return self.root / "events" / "launcher.jsonl"

    @property
    def control(self) -> Path:
        """Requests to the launcher, one file each."""
        return self.root / "control"

    @property
    def data(self) -> Path:
        """Rows that came from the notebook, and the tokenised rows."""
        return self.root / "data"

    @property
    def snapshot(self) -> Path:
        """The notebook's rows as they were when the job started."""
        return self.data / "rows.jsonl"

    @property
    def lost_rows(self) -> Path:
        """The rows that are cut or left out, one a line; written with the tokenised rows."""
        return self.data / "lost.jsonl"

    @property
    def final(self) -> Path:
        """The trained model; present only once it is complete and was read back."""
        return self.root / "final"

    @property
    def final_scratch(self) -> Path:
        """The trained model on its way; what cannot be read back stays here."""
        return self.root / ".final.tmp"

    def unfinished(self) -> list[Path]:
        """What a killed process has left half-written, besides ``final_scratch``."""
        return [path for path in self.data.glob(".*") if path.is_file()]

    def rank(self, rank: int, attempt: int = 0) -> RankDir:
        """The folder of one rank."""
        return RankDir(self.root / f"attempt_{attempt}" / f"rank_{rank}")

    def ranks(self, attempt: int = 0) -> Iterator[tuple[int, RankDir]]:
        """The rank folders that exist, in order of rank."""
        found = (self.root / f"attempt_{attempt}").glob("rank_[0-9]*")
        for rank in sorted(int(path.name.removeprefix("rank_")) for path in found):
            yield rank, self.rank(rank, attempt)

    def event_files(self) -> list[Path]:
        """Every event file that exists: the launcher's first, then each attempt's by rank."""
        ranks = sorted(self.root.glob("attempt_*/rank_*/events.jsonl"))
        return [path for path in (self.launcher_events, *ranks) if path.exists()]

    def is_taken(self) -> bool:
        """Whether something else is there: a file, or a folder that is not empty or cannot be looked into."""
        try:
            return any(self.root.iterdir())
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def create(self) -> None:
        """Make the folder, for its owner's eyes only.

        Raises:
            FileExistsError: The folder exists and is not empty.
            OSError: It could not be made.
        """
        if self.is_taken():
            raise FileExistsError(f"{self.root} exists and is not empty")
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)
        for folder in (self.launcher_events.parent, self.control, self.data):
            folder.mkdir()
