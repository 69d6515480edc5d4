"""The life of a job: its states, and which may follow which."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """Where a job stands; a terminal state never changes."""

    QUEUED = "queued"
    PROVISIONING = "provisioning"
    CONFIGURING = "configuring"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self in _TERMINAL

    def may_become(self, following: Status) -> bool:
        """Whether ``following`` is a legal next state: forward only, and nothing after the end."""
        if self.is_terminal or following == self:
            return False
        return following.is_terminal or _ORDER.index(following) > _ORDER.index(self)


_TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
_ORDER = (Status.QUEUED, Status.PROVISIONING, Status.CONFIGURING, Status.RUNNING)
