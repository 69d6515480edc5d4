"""A state as text and back: a TOML job file, a cell, a call of ``train``. Nothing that is read is evaluated."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.secrets import redact
from kernel_launcher.spec import read_spec
from kernel_launcher.spec.names import SECTIONS, locate
from kernel_launcher.spec.read import parse_gpus, parse_override
from veri_jupyter import options
from veri_jupyter.explorer.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAGIC = re.compile(r"%%?(veri_\w+)([^\n]*)\n?(.*)", re.DOTALL)
_DESCRIBING = {"veri_train": options.TRAIN, "veri_plan": options.PLAN, "veri_explore": options.EXPLORE}
_CALL = re.compile(r"\b(train|plan|explore)\(")
_CALLED = ("train", "plan", "explore")
_MODEL = re.compile(r"[\w./~-]+(?<!\.toml)(?<!\.yaml)(?<!\.yml)")
_NOT_FINITE = {f"float({name!r})": float(name) for name in ("inf", "-inf", "nan")}
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ORDER = ("", "model", "dataset", "method", "resources", "job")  # as people write it


def read(text: str) -> State:
    """The state that a text describes: TOML, a cell, a call, a job file, a model's folder or its id.

    Raises:
        InvalidRequest: It is none of these. Whether its settings are right is not asked here.
    """
    text = text.strip()
    if magic := _MAGIC.fullmatch(text):
        return _of_cell(*magic.groups())
    if _CALL.search(text):
        return _of_call(text)
    return State(_settings(text))


def to_toml(state: State) -> str:
    """A job file. Rows that are in a variable cannot be named in one."""
    lines = [f"# rows: the variable {state.rows}, given with --data {state.rows}"] if state.rows else []
    sections: dict[str, dict[str, Any]] = {section: {} for section in _ORDER}
    for key, value in state.settings.items():
        section, _, name = key.rpartition(".")
        sections.setdefault(section, {})[name] = value
    for section, fields in sections.items():
        if fields:
            lines += ["", f"[{_path(section)}]"] if section else []
            lines += [f"{_key(name)} = {_toml(value)}" for name, value in fields.items()]
    return "\n".join(lines).strip() + "\n"


def to_cell(state: State) -> str:
    """A cell that starts the job."""
    data = f" --data {state.rows}" if state.rows else ""
    return f"%%veri_train{data}\n{to_toml(State(state.settings))}"


def to_python(state: State) -> str:
    """A call that starts the job."""
    settings = dict(state.settings)
    base = settings.get("model.base")
    # What could be a text of settings does not stand first, where it would be read as one.
    names_model = isinstance(base, str) and _MODEL.fullmatch(base) is not None
    arguments = [_python(settings.pop("model.base") if names_model else {})]
    if state.rows:
        arguments.append(state.rows)
    elif isinstance(settings.get("dataset.id"), str):
        arguments.append(_python(settings.pop("dataset.id")))
    dotted = {}
    for key, value in settings.items():
        name = _argument(key, value)
        if name is None:
            dotted[key] = value
        else:
            arguments.append(f"{name}={_python(value)}")
    if dotted:
        arguments.append(f"**{_python(dotted)}")
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"import veri_jupyter\n\njob = veri_jupyter.train(\n{lines})\n"


FORMS: dict[str, Callable[[State], str]] = {"cell": to_cell, "Python": to_python, "TOML": to_toml}


def flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Nested or bare settings under their dotted names; a name that nobody knows keeps its own."""
    for key, value in settings.items():
        if key in SECTIONS and isinstance(value, Mapping):
            yield from ((locate(f"{key}.{name}") or f"{key}.{name}", item) for name, item in value.items())
        elif key in ("hyperparameters", "parameters") and isinstance(value, Mapping):
            yield from flat(value)
        else:
            yield locate(str(key)) or str(key), value


def _settings(text: str) -> dict[str, Any]:
    """The settings of a TOML text, or what else describes a job in one line."""
    if not text:
        return {}
    if "\n" not in text and "=" not in text and not text.startswith("["):
        # A job file is read as such: its paths are relative to it.
        return dict(flat(read_spec(text).to_sections())) if text.endswith(".toml") else {"model.base": text}
    try:
        return dict(flat(tomllib.loads(text)))
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"is not TOML: {error}.", 'Text goes in quotes: base = "./model".') from None


def _of_cell(name: str, line: str, body: str) -> State:
    if name not in _DESCRIBING:
        raise _unreadable(f"%{name} describes no job.", "Paste a cell of %%veri_train.")
    try:
        asked = None if "--help" in line else _DESCRIBING[name].parse_line(line)
    except UsageError as error:
        raise _unreadable(f"{error}.", "") from None
    if asked is None:
        raise _unreadable("--help describes no job.", "Leave it out.")
    given = {"job.name": getattr(asked, "name", None), "resources.gpu_type": asked.gpu_type}
    given |= {f"resources.{key}": value for key, value in parse_gpus(asked.gpus).items()}
    given |= dict(flat(dict(parse_override(pair) for pair in asked.set)))
    settings = _settings(body.strip() or asked.file or "") | {k: v for k, v in given.items() if v is not None}
    return State(settings, rows=asked.data or "")


def _of_call(text: str) -> State:
    call = _found_call(text)
    source, *more = call.args or [ast.Dict([], [])]
    described = _plain(source)
    settings = dict(flat(described)) if isinstance(described, Mapping) else _settings(str(described))
    rows = ""
    if more and isinstance(more[0], ast.Name):
        rows = more[0].id
    elif more and (data := _plain(more[0])) is not None:
        settings["dataset.id"] = data
    for keyword in call.keywords:
        value = _plain(keyword.value)
        given = value if keyword.arg is None and isinstance(value, Mapping) else {str(keyword.arg): value}
        if keyword.arg == "gpus":
            given = {f"resources.{key}": item for key, item in parse_gpus(value).items()}
        settings |= dict(flat(given))
    return State({key: value for key, value in settings.items() if value is not None}, rows)


def _found_call(text: str) -> ast.Call:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _unreadable(f"is not Python: {error}.", "Paste the whole call.") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in _CALLED:
                return node
    raise _unreadable("calls neither train nor plan.", "Paste the whole call.")


def _plain(node: ast.expr) -> Any:
    said = ast.unparse(node)
    if said in _NOT_FINITE:
        return _NOT_FINITE[said]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        reason, fix = f"{said[:60]!r} is not a plain value.", "Write the value itself: nothing is evaluated."
        raise _unreadable(reason, fix) from None


def _unreadable(reason: str, fix: str) -> InvalidRequest:
    return InvalidRequest([Fault("text", "", redact(reason), fix)])


def _argument(key: str, value: Any) -> str | None:
    """What a setting is called in a call; None for one that has no name of its own there."""
    if key == "method.type":
        return "method"
    if key == "resources.gpu_count" and isinstance(value, int) and not isinstance(value, bool):
        return "gpus"
    name = key.rpartition(".")[2]
    return name if name.isidentifier() and locate(name) == key else None


def _python(value: Any) -> str:
    """A value as this project writes it: texts in double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_python(name)}: {_python(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_python, value))}]"
    if isinstance(value, float) and not isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(name))} = {_toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value)  # numbers, dates and times are written as Python writes them


def _path(section: str) -> str:
    return ".".join(map(_key, section.split(".")))


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml(name)
