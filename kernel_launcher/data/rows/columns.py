"""What the columns of a data set are called."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kernel_launcher.spec.fields import Dataset


class Names(NamedTuple):
    """The column that is read for each field."""

    prompt: str = "prompt"
    completion: str = "completion"
    messages: str = "messages"
    text: str = "text"
    chosen: str = "chosen"
    rejected: str = "rejected"
    system: str = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The user's name for each column, as under ``[dataset]``; None where the usual name is looked for."""

    prompt: str | None = None
    completion: str | None = None
    messages: str | None = None
    text: str | None = None
    chosen: str | None = None
    rejected: str | None = None
    system: str | None = None

    @classmethod
    def of(cls, dataset: Dataset) -> Columns:
        """The columns that a job names."""
        return cls(**{field.name: getattr(dataset, field.name) for field in fields(cls)})

    def named(self) -> dict[str, str]:
        """The fields that the user named a column for, with that column."""
        return {field.name: name for field in fields(self) if (name := getattr(self, field.name)) is not None}

    def names(self) -> Names:
        """The column to read for each field: the user's name, else the usual one."""
        return Names(**self.named())
