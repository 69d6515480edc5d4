"""Keeps tokens out of everything that is printed, logged or written."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

MASK = "***"
_SECRET_NAME = re.compile(r"token|secret|password|passwd|api_?key|credential", re.IGNORECASE)
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{8,}|\bapi_[A-Za-z]*_?[A-Za-z0-9]{20,}|\b(?:ghp|sk)[-_][A-Za-z0-9]{16,}")
_IN_URL = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")


def is_secret(name: str) -> bool:
    """Whether a setting or variable of this name holds a secret."""
    return bool(_SECRET_NAME.search(name.rpartition(".")[2]))


def redact(text: str) -> str:
    """The text with every token, and every value of a secret environment variable, as ``***``."""
    for name, value in os.environ.items():
        if len(value) >= 8 and is_secret(name):
            text = text.replace(value, MASK)
    return _IN_URL.sub(MASK, _TOKEN.sub(MASK, text))


def shown(name: str, value: object, limit: int = 120) -> str:
    """A setting's value as text that is safe to print and not longer than ``limit`` characters."""
    if is_secret(name):
        return MASK
    if isinstance(value, Mapping):
        value = {key: MASK if is_secret(str(key)) else item for key, item in value.items()}
    text = redact(repr(value))
    return text if len(text) <= limit else text[: limit - 1] + "…"
