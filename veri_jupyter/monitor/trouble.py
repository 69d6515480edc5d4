"""What a view says when it cannot be drawn: what a thread prints or logs, nobody sees in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from kernel_launcher.protocol.files import readable
from kernel_launcher.secrets import redact

if TYPE_CHECKING:
    from kernel_launcher.protocol.index import Entry


def in_words(error: Exception) -> str:
    """An error in one line, without secrets."""
    return readable(redact(f"{type(error).__name__}: {error}"))


def text(entry: Entry, error: Exception) -> str:
    """Why the view of a job stands still, and how to go on."""
    return f"This view stands still: it could not be drawn ({in_words(error)}). Go on: %veri_attach {entry.id}"


def html(entry: Entry, error: Exception) -> str:
    """The same for a page, with or without the dashboard's style."""
    style = "color: var(--v-bad, var(--jp-error-color1, #c62828)); font-weight: 600"
    return f'<div role="alert" style="{style}">✗ {escape(text(entry, error))}</div>'
