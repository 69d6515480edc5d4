"""Keeps tokens out of everything that is printed, logged or written."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

MASK = "***"
_SHORTEST = 8  # a shorter value of a secret variable is a word that may stand anywhere
_MOST_ITEMS = 20
_DEEPEST = 4
_SECRET_NAME = re.compile(r"token(?!s|iz)|secret|password|passwd|api_?key|credential", re.IGNORECASE)
_PATTERNS = (
    # Real tokens have 30 characters and more; hf_transfer is a package.
    (re.compile(r"hf_[A-Za-z0-9]{16,}"), MASK),
    (re.compile(r"\bapi_[A-Za-z]*_?[A-Za-z0-9]{20,}"), MASK),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|sk-)[A-Za-z0-9_-]{16,}"), MASK),
    (re.compile(r"(?<=Bearer )[\w.~+/=-]{8,}"), MASK),
    (re.compile(r"(?<=://)[^/\s\"']+(?=@)"), MASK),
    (
        re.compile(r"([?&][\w-]*(?:token|secret|password|key|signature|credential)=)[^&\s'\"]+", re.IGNORECASE),
        rf"\1{MASK}",
    ),
)


def is_secret(name: str) -> bool:
    """Whether a setting or variable of this name holds a secret."""
    return bool(_SECRET_NAME.search(name))


def redact(text: str) -> str:
    """The text with every token, and every value of a secret environment variable, as ``***``."""
    values = {value.strip() for name, value in os.environ.items() if is_secret(name)}
    for value in sorted(values, key=len, reverse=True):  # one may begin with another
        if len(value) >= _SHORTEST:
            text = text.replace(value, MASK)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def redacted(value: Any) -> Any:
    """A value of dicts, lists and texts, with every text in it redacted."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value


def shown(name: str, value: object, limit: int = 120) -> str:
    """A setting's value as text that is safe to print and not longer than ``limit`` characters."""
    text = MASK if is_secret(name) else redact(_text(value, _DEEPEST))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _text(value: object, depth: int) -> str:
    """What ``repr`` says, without secrets, and with no more work than a reader could look at."""
    if isinstance(value, str):
        return repr(redact(value))  # first: repr escapes what a secret may hold
    if isinstance(value, Mapping | list | tuple) and depth == 0:
        return "…"
    if isinstance(value, Mapping):
        pairs = (
            f"{_text(key, 0)}: {repr(MASK) if is_secret(str(key)) else _text(item, depth - 1)}"
            for key, item in islice(value.items(), _MOST_ITEMS)
        )
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(item, depth - 1) for item in value[:_MOST_ITEMS])}]"
    try:
        return repr(value)
    except Exception:  # somebody else's object may fail in any way; so do integers of 5,000 digits
        return f"<{type(value).__name__}>"
