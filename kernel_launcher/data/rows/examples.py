"""The four shapes that every row is brought into."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One turn; ``role`` is system, user, assistant or tool."""

    role: str
    content: str


Turns = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Messages:
    """A chat. Its first ``context`` turns are given: an assistant turn among them is no answer to learn."""

    messages: Turns
    context: int = 0


@dataclass(frozen=True, slots=True)
class PromptCompletion:
    """Plain text that is given, and plain text to learn."""

    prompt: str
    completion: str


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text, all of it to learn."""

    text: str


@dataclass(frozen=True, slots=True)
class Preference:
    """Two continuations, the better one first. Plain text, or turns; the prompt is of the same kind, or None."""

    prompt: str | Turns | None
    chosen: str | Turns
    rejected: str | Turns


Example = Messages | PromptCompletion | Text | Preference
