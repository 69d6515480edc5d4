"""What can be told from the words of a row alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernel_launcher.data.lint.finding import Rows
from kernel_launcher.data.rows.examples import Preference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel_launcher.data.lint.finding import Book
    from kernel_launcher.data.lint.parts import Parts
    from kernel_launcher.data.rows.examples import Example

# What str(None) and the like leave behind in an export, and forums in the place of a removed answer.
_PLACEHOLDERS = frozenset(
    ("nan", "NaN", "<NA>", "NaT", "None", "null", "NULL", "undefined", "[deleted]", "[removed]", "[object Object]")
)
_LONGEST_PLACEHOLDER = max(map(len, _PLACEHOLDERS))
# Quotes, dashes and accented letters whose UTF-8 was read as Windows-1252.
_MISREAD = [letter.encode().decode("cp1252") for letter in "\u2019\u201c\u2013\u2014\u2026éèüöäçñ"]
_BROKEN = re.compile("|".join(["\ufffd", "\0", *_MISREAD]))
# A prompt of a word or two may well begin its answer.
_LEAST_REPEATED = 20


class TextFindings:
    """Looks at the words of each row."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._chats = Rows("a chat, and in the others plain text")
        self._plain = Rows("plain text, and in the others a chat")

    def see(self, number: int, example: Example, parts: Parts) -> None:
        """Look at one row."""
        add = self._book.add
        (self._chats if parts.roles else self._plain).add(number)
        for answer in parts.answers:
            if _is_blank(answer):
                add("empty_answers", number)
            elif len(answer) <= _LONGEST_PLACEHOLDER and answer.strip() in _PLACEHOLDERS:
                add("placeholder_answers", number, repr(answer.strip()))
            elif parts.roles and (answer[:1].isspace() or answer[-1:].isspace()):
                add("spaced_answers", number)
        for content in parts.contents:
            if (not content.isascii() or "\0" in content) and (found := _BROKEN.search(content)):
                add("broken_characters", number, f"{found[0]!a} in {_around(content, found.start())!r}")
        if parts.roles and parts.roles[-1] != "assistant":
            add("trailing_turns", number)
        is_pair = isinstance(example, Preference)
        if _repeats(parts.prompt, parts.answers if is_pair else parts.answers[-1:]):
            add("answer_repeats_prompt", number)
        if isinstance(example, Preference) and example.chosen == example.rejected:
            add("chosen_equals_rejected", number)

    def finish(self) -> None:
        """Say what only all rows together tell."""
        if self._chats.count and self._plain.count:
            self._book.put("mixed_formats", min(self._chats, self._plain, key=lambda rows: rows.count))


def _is_blank(answer: str) -> bool:
    """Whether nothing of it can be seen: besides white space there are characters of no width."""
    return not answer[:1].isalnum() and not any(c.isprintable() and not c.isspace() for c in answer)


def _repeats(prompt: Sequence[str], answers: Sequence[str]) -> bool:
    if not prompt or len(prompt[-1]) < _LEAST_REPEATED:
        return False
    return any(answer.lstrip().startswith(prompt[-1]) for answer in answers)


def _around(text: str, at: int) -> str:
    return text[max(0, at - 10) : at + 10]
