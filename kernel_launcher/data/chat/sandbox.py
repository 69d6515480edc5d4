"""The jinja2 environment of chat templates, which come with models and are not trusted."""

from __future__ import annotations

import json
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jinja2.parser import Parser

Pieces = list[str]
Places = list[tuple[int, int]]
_tracker: ContextVar[tuple[Pieces, Places] | None] = ContextVar("tracker", default=None)


@cache
def environment() -> ImmutableSandboxedEnvironment:
    """The environment that all templates share."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.filters["tojson"] = _tojson
    made.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return made


@contextmanager
def tracked() -> Iterator[tuple[Pieces, Places]]:
    """Where the pieces of one text are put as they are written, and where the generation tag notes its places."""
    noted: tuple[Pieces, Places] = ([], [])
    token = _tracker.set(noted)
    try:
        yield noted
    finally:
        _tracker.reset(token)


class _Generation(Extension):
    """``{% generation %}`` around what the model writes."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("note"), [], [], body).set_lineno(line)

    def note(self, caller: Callable[[], str]) -> str:
        text = caller()
        if noted := _tracker.get():
            pieces, places = noted
            start = sum(map(len, pieces))
            places.append((start, start + len(text)))
        return text


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Without the escapes for HTML that jinja2's own makes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _Dict:
    """Makes dictionaries, and gives no access to the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """Takes no private names: jinja2 does not look at what is stored here."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        # Unnamed, so that a template may store a value called self.
        self, values = args[0], dict(*args[1:], **kwargs)
        for name in values:
            _refuse_private(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no private name: {name}")
