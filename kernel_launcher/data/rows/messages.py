"""One conversation: who said what, from any of the notations in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_launcher.data.rows.examples import Message
from kernel_launcher.data.rows.faults import DataRefusal, brief

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeGuard

    from kernel_launcher.data.rows.examples import Turns

ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "tool": "tool",
}
# Of an assistant's turns only an answer to learn may be, and what it teaches is the linter's to judge.
_MAY_BE_EMPTY = ("system", "tool", "assistant")
# A turn that carries one of these means more than its text; leaving it out would train on something else.
_UNREAD = ("tool_calls", "function_call", "reasoning_content", "reasoning", "thinking")


def is_turns(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether a value is written as a list of turns."""
    return isinstance(value, (list, tuple))


def conversation(value: object, column: str, *, answered: bool = False) -> Turns:
    """The turns of a conversation, as role and content or as from and value.

    Args:
        value: As the row has it.
        column: Where it is from.
        answered: Whether its last assistant turn is an answer, which may be empty.

    Raises:
        DataRefusal: It is no list of turns, or a turn has no known role or no text.
    """
    if not isinstance(value, (list, tuple)):
        raise DataRefusal(f"{quoted(column)} is {kind(value)}, not a list of turns.")
    if not value:
        raise DataRefusal(f"{quoted(column)} has no turns.")
    turns = tuple([_message(turn, number, column) for number, turn in enumerate(value, 1)])
    said = [number for number, turn in enumerate(turns, 1) if turn.role == "assistant"]
    for number in said[:-1] if answered else said:
        text(turns[number - 1].content, column, number)
    return turns


def is_sharegpt(value: object) -> bool:
    """Whether a conversation is written as from and value."""
    first = value[0] if isinstance(value, (list, tuple)) and value else None
    return isinstance(first, dict) and first.get("from") is not None


def text(value: object, column: str, turn: int = 0, *, may_be_empty: bool = False) -> str:
    """The value of a column, or of the content of a turn in it, as text.

    Raises:
        DataRefusal: It is something else, is empty, or cannot be encoded.
    """
    if isinstance(value, str) and value.isascii() and (may_be_empty or not (value.isspace() or not value)):
        return value
    place = f"the content of turn {turn}" if turn else quoted(column)
    if not isinstance(value, str):
        raise DataRefusal(f"{place} is {kind(value)}, not text.")
    if not may_be_empty and (not value or value.isspace()):
        raise DataRefusal(f"{place} is empty.")
    if not _encodable(value):
        raise DataRefusal(f"{place} holds half of a surrogate pair, which no tokenizer takes.")
    return value


def quoted(column: str) -> str:
    """A column's name, short enough for an error."""
    return f"'{brief(column)}'"


def kind(value: object) -> str:
    """What a value is, in words."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "NaN" if value != value else "a number"  # noqa: PLR0124 - only NaN differs from itself
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, (list, tuple)) else f"of type {type(value).__name__}"


def _message(turn: Any, number: int, column: str) -> Message:
    if not isinstance(turn, dict):
        raise DataRefusal(f"turn {number} is {kind(turn)}, not an object with role and content.")
    role_key, content_key = ("from", "value") if turn.get("from") is not None else ("role", "content")
    role = _role(turn.get(role_key), number)
    if len(turn) > 2:
        _refuse_unread(turn, number)
    content = turn.get(content_key)
    if isinstance(content, (list, tuple)):
        content = _joined(content, number)
    return Message(role, text(content, column, number, may_be_empty=role in _MAY_BE_EMPTY))


def _role(value: object, number: int) -> str:
    role = ROLES.get(value) if isinstance(value, str) else None
    if role is None:
        given = f"the role '{brief(value)}'" if isinstance(value, str) else "no role"
        raise DataRefusal(f"turn {number} has {given}; known roles are {', '.join(ROLES)}.")
    return role


def _refuse_unread(turn: dict[str, Any], number: int) -> None:
    for key in _UNREAD:
        if turn.get(key):
            raise DataRefusal(f"turn {number} has '{key}', which this release does not read; put it in the content.")


def _joined(parts: list[Any] | tuple[Any, ...], number: int) -> str:
    return "".join([_part(part, number) for part in parts])


def _part(part: Any, number: int) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    given = part.get("type") if isinstance(part, dict) else None
    what = f"a part of type '{brief(given)}'" if isinstance(given, str) else f"a part that is {kind(part)}"
    raise DataRefusal(f"turn {number} has {what}; only text can be trained on.")


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
