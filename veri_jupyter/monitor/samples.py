"""Answers of the model while it learns, as HTML: the first beside the newest ones, with what changed marked. Pure."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from html import escape
from typing import TYPE_CHECKING, Any

from kernel_launcher.protocol.files import readable
from kernel_launcher.protocol.summary import after

if TYPE_CHECKING:
    from collections.abc import Sequence

_NEWEST = 2
_MOST_PROMPTS = 6
_MOST_CHARACTERS = 1_200
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")

Step = tuple[int, list[dict[str, Any]]]


def html(steps: Sequence[Step]) -> str:
    """Each prompt with its answers: the first ones there are, and the newest; empty without any."""
    if not steps:
        return ""
    shown = [steps[0], *steps[max(1, len(steps) - _NEWEST) :]]
    prompts = list(dict.fromkeys(_text(row.get("prompt")) for row in shown[-1][1]))[:_MOST_PROMPTS]
    return "".join(_prompt(prompt, shown) for prompt in prompts)


def _prompt(prompt: str, steps: Sequence[Step]) -> str:
    answers, before = [], None
    for step, rows in steps:
        row = next((row for row in rows if _text(row.get("prompt")) == prompt), None)
        if row is None:
            continue
        text = _text(row.get("text")).strip() or "(nothing)"
        marked = escape(text) if before is None else _marked(before, text)
        # An answer that was cut at its limit is not a model that never ends.
        cut = "" if row.get("finished", True) else " …"
        answers.append(f'<div class="answer"><span class="when">{after(step)}</span>{marked}{cut}</div>')
        before = text
    return f'<div class="veri-samples"><div class="prompt">{escape(prompt)}</div>{"".join(answers)}</div>'


def _marked(before: str, text: str) -> str:
    old, new = _WORDS.findall(before), _WORDS.findall(text)
    parts = []
    for kind, _, _, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        words = escape("".join(new[start:end]))
        parts.append(words if kind == "equal" or not words.strip() else f"<mark>{words}</mark>")
    return "".join(parts)


def _text(value: object) -> str:
    if isinstance(value, list):  # a chat: what the user said last
        value = next((turn.get("content") for turn in reversed(value) if isinstance(turn, dict)), "")
    return "\n".join(readable(line, _MOST_CHARACTERS) for line in str(value or "")[:_MOST_CHARACTERS].split("\n"))
