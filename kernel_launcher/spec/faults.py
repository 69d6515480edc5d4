"""From a validation error to faults that say what was wrong and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import Fault
from kernel_launcher.secrets import redact, shown
from kernel_launcher.spec.names import NEEDLESS, SECTIONS, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "model_type": "a section with keys of its own",
    "dict_type": "a section with keys of its own",
}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
    "too_long": ("max_length", "a list of at most"),
}

# Values with a reason of their own.
_SPECIAL: dict[tuple[str, object], tuple[str, str]] = {
    ("method.zero_stage", 1): (
        "ZeRO-1 is not offered: sharding the gradients too (stage 2) costs no extra communication.",
        "Use zero_stage = 2.",
    ),
    ("method.precision", "fp16"): (
        "fp16 needs loss scaling and overflows where bf16 does not.",
        'Use precision = "bf16", or "fp32" on a GPU without bf16.',
    ),
    ("method.precision", "fp8"): ("FP8 training is not offered.", 'Use precision = "bf16".'),
}


def from_validation(error: ValidationError, model: type[BaseModel]) -> list[Fault]:
    """One fault for each setting that did not validate.

    Args:
        error: What pydantic raised.
        model: The class that was validated; its sections are the known names.
    """
    by_key: dict[str, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        by_key.setdefault(_key(detail["loc"], model), []).append(detail)
    return [_fault(key, details) for key, details in by_key.items()]


def unknown(key: str, value: object) -> Fault:
    """The fault of a setting that does not exist, with the nearest known name."""
    given = _readable(key), shown(key, value)
    bare = key.rpartition(".")[2].lower()
    if key in SECTIONS:
        first = next(iter(SECTIONS[key].model_fields))
        return Fault(*given, "is a section with keys of its own.", f"Did you mean {key}.{first}?")
    if bare in NEEDLESS:
        reason, fix = NEEDLESS[bare]
        return Fault(*given, f"no such setting: {reason}", fix)
    guess = nearest(key)
    fix = f"Did you mean {guess}?" if guess else f"Sections are: {', '.join(SECTIONS)}."
    return Fault(*given, "no such setting.", fix)


def _readable(key: str, limit: int = 80) -> str:
    text = redact(key if key.isprintable() and key else repr(key))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _key(location: Iterable[int | str], model: type[BaseModel]) -> str:
    # Below section.field the location names branches of a union, or places in a list.
    parts = [str(part) for part in location]
    depth = 1 if parts and parts[0] not in model.model_fields else 2
    return ".".join(parts[:depth])


def _fault(key: str, details: list[ErrorDetails]) -> Fault:
    first = details[0]
    value: Any = first["input"]
    if first["type"] == "extra_forbidden":
        return unknown(key, value)
    if isinstance(value, int | str) and (special := _SPECIAL.get((key, value))) and not isinstance(value, bool):
        return Fault(key, shown(key, value), *special)
    wanted = " or ".join(dict.fromkeys(_wanted(detail) for detail in details))
    return Fault(key, shown(key, value), f"must be {wanted}.", _help(key))


def _wanted(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _TYPES:
        return _TYPES[kind]
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        limit = context[name]
        return f"{words} {limit:,}" if isinstance(limit, int) else f"{words} {limit:g}"
    if kind == "literal_error":
        expected = str(context["expected"])
        return f"one of {expected}".replace(" or ", ", ") if " or " in expected else expected
    if kind == "string_too_short":
        return "text that is not empty"
    if kind == "string_pattern_mismatch":
        return "letters, digits, '.', '_' or '-', 64 at most, beginning with a letter or digit"
    if kind == "finite_number":
        return "a finite number"
    if kind == "value_error":
        return str(context.get("error", detail["msg"])).removeprefix("must be ").rstrip(".")
    return detail["msg"]


def _help(key: str) -> str:
    section, _, name = key.partition(".")
    field = SECTIONS[section].model_fields.get(name) if section in SECTIONS else None
    return f"({field.description}.)" if field is not None and field.description else ""
