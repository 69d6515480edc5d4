"""What a person may hand to the functions: anything else is refused with key and value, before something happens."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.secrets import shown
from veri_jupyter.environment import DISPLAYS, frontend, has_widgets

if TYPE_CHECKING:
    from collections.abc import Sequence

Word = TypeVar("Word", bound=str)
Prompt = str | list[dict[str, str]]


def flag(key: str, value: object) -> bool:
    """True or false; a word such as ``"no"`` would count as true."""
    if isinstance(value, bool):
        return value
    raise _refused(key, value, "is neither True nor False.", f"Write {key}=True, or leave it out.")


def whole(key: str, value: object, least: int = 0) -> int:
    """A whole number, NumPy's too."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise _refused(key, value, f"must be a whole number, at least {least}.", "")
    return number


def amount(key: str, value: object) -> float:
    """A finite number that is not negative."""
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0:
        return float(value)
    raise _refused(key, value, "must be a number, at least 0.", "")


def choice(key: str, value: object, known: Sequence[Word]) -> Word:
    """One of a few words."""
    for word in known:
        if word == value:
            return word
    raise _refused(key, value, "is not among the choices.", f"Choose from {', '.join(known)}.")


def display(value: object) -> str:
    """How data is shown; a widget only where there can be one."""
    chosen = choice("display", value, (*DISPLAYS, "none"))
    if chosen == "widget" and not frontend().is_kernel:
        raise _refused("display", value, "a widget needs a notebook.", 'Use display="static", or leave it out.')
    if chosen == "widget" and not has_widgets():
        fix = 'pip install "veri-jupyter[notebook]", or use display="static".'
        raise _refused("display", value, "its packages are not installed here.", fix)
    return chosen


def file(key: str, value: object) -> str | Path | None:
    """What may name a file; None for none."""
    if value is None or isinstance(value, str | Path):
        return value
    raise _refused(key, value, "does not name a file.", "Give its path.")


def job_id(key: str, value: object) -> str:
    """What may name a job."""
    if isinstance(value, str):
        return value
    raise _refused(key, value, "does not name a job.", 'Give its id, its name, its folder, or "last".')


def mapping(key: str, value: object) -> dict[str, Any]:
    """Settings as a dict; none for None."""
    if value is None or isinstance(value, Mapping):
        return dict(value or {})
    raise _refused(key, value, "is no dict.", f'Write {key}={{"lora_rank": 8}}.')


def metrics(keys: object, known: Sequence[str]) -> list[str]:
    """Names of metrics, one or several, each of them known."""
    names: list[Any] = list(keys) if isinstance(keys, Iterable) and not isinstance(keys, str) else [keys]
    for name in names:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            fix = f"Did you mean {near[0]}?" if near else f"This job has {', '.join(known)}."
            raise _refused("keys", name, "no such metric.", fix)
    return names


def prompts(value: object) -> list[Prompt]:
    """Prompts as a list: a text is one, and so is one chat."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise _no_prompt(value)
    given = list(value)
    if given and all(isinstance(item, Mapping) for item in given):
        given = [given]
    return [item if isinstance(item, str) else _chat(item) for item in given]


def _chat(value: object) -> list[dict[str, str]]:
    messages = list(value) if isinstance(value, list | tuple) else []
    if not messages or not all(map(_is_message, messages)):
        raise _no_prompt(value)
    return [dict(message) for message in messages]


def _is_message(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and {"role", "content"} <= value.keys()
        and all(isinstance(part, str) for pair in value.items() for part in pair)
    )


def _no_prompt(value: object) -> InvalidRequest:
    fix = 'Give a text, or a chat: [{"role": "user", "content": "…"}]; or a list of these.'
    return _refused("prompts", value, "is no prompt.", fix)


def _refused(key: str, value: object, reason: str, fix: str) -> InvalidRequest:
    return InvalidRequest([Fault(key, shown(key, value), reason, fix)])
