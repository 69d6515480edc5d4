"""Readers: a job from TOML, a dict or keyword arguments, with overrides; all faults of one request together."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.secrets import redact, shown
from kernel_launcher.spec.faults import unknown
from kernel_launcher.spec.job import JobSpec
from kernel_launcher.spec.names import SAID_BY_PLANS, SECTIONS, locate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PATHS = ("model.base", "dataset.id", "method.chat_template", "resources.python")
_LIKE_A_PATH = re.compile(r"^(\.\.?/|~|/)|\.(jsonl?|csv|parquet|jinja)(\.gz)?$", re.IGNORECASE)
_TOML_TEXT = re.compile(r"\n|^\s*(\[|[\w.\"'-]+\s*=)")
# Two ways to answer one question: a later layer's answer stands for both.
_SAME_QUESTION = {
    "resources.gpu_count": ("resources.gpu_ids",),
    "resources.gpu_ids": ("resources.gpu_count",),
    "method.max_steps": ("method.num_epochs",),
    "method.num_epochs": ("method.max_steps",),
    "method.warmup_steps": ("method.warmup_ratio",),
    "method.warmup_ratio": ("method.warmup_steps",),
}


@dataclass(slots=True)
class _Draft:
    """Sections on their way to a spec; later layers win over earlier ones, aliases must agree within a layer."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def layer(self, settings: Mapping[str, Any], base_dir: Path) -> None:
        """Take in settings, nested by section or bare, None for unset; relative paths start at ``base_dir``."""
        given: dict[str, tuple[str, Any]] = {}
        for key, value in _flat(settings):
            if key.removeprefix("method.") in SAID_BY_PLANS:
                continue
            dotted = locate(key)
            if dotted is None:
                self.faults.append(unknown(key, value))
            elif value is None:
                continue
            elif dotted in given and given[dotted][1] != value:
                other, other_value = given[dotted]
                reason = f"differs from {other} = {shown(other, other_value)}, which is the same setting."
                self.faults.append(Fault(key, shown(key, value), reason, f"Keep {dotted}."))
            else:
                given[dotted] = (key, value)
        for dotted in given:
            for other in _SAME_QUESTION.get(dotted, ()):
                section, _, name = other.partition(".")
                self.sections.get(section, {}).pop(name, None)
        for dotted, (_, value) in given.items():
            section, _, name = dotted.partition(".")
            is_path = dotted in _PATHS and isinstance(value, str)
            # A folder that happens to have the name of a template is none.
            exists = Path.is_file if dotted == "method.chat_template" else Path.exists
            taken = _anchored(value, base_dir, exists) if is_path else value
            self.sections.setdefault(section, {})[name] = taken

    def spec(self) -> JobSpec:
        """The spec, or every fault found on the way and in it."""
        try:
            spec = JobSpec.from_sections(self.sections)
        except InvalidRequest as error:
            raise InvalidRequest([*self.faults, *error.faults]) from None
        if self.faults:
            raise InvalidRequest(self.faults)
        return spec


def read_spec(
    source: Mapping[str, Any] | str | Path | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    base_dir: Path | None = None,
) -> JobSpec:
    """A spec from a source, keyword settings and overrides; the later win.

    Args:
        source: A dict, TOML text, the path of a TOML file, or the base model's folder or hub id.
        settings: Keyword arguments: bare or dotted names, with None for unset.
        overrides: ``--set`` pairs: bare or dotted names.
        base_dir: What relative paths in ``source`` text, ``settings`` and ``overrides`` are relative to (default:
            the working directory); those in a file are relative to the file.

    Raises:
        InvalidRequest: With all faults at once.
    """
    here = (base_dir or Path.cwd()).absolute()
    draft = _Draft()
    if isinstance(source, str | Path):
        draft.layer(*_opened(str(source), here))
    elif isinstance(source, Mapping):
        draft.layer(source, here)
    elif source is not None:
        reason = "is neither a dict, TOML, a job file nor a base model."
        raise InvalidRequest([Fault("job", shown("job", source), reason, "Give rows as the second argument.")])
    draft.layer(settings or {}, here)
    draft.layer(overrides or {}, here)
    return draft.spec()


def parse_override(text: str) -> tuple[str, Any]:
    """``KEY=VALUE`` as a pair; the value is read as TOML (``8``, ``true``, ``[1, 2]``), or else taken as text.

    Raises:
        InvalidRequest: There is no ``=``, or no key.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise InvalidRequest([Fault("--set", shown("--set", text), "not KEY=VALUE.", "Write --set lora_rank=8.")])
    try:
        read = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return key, value
    return key, value if isinstance(read, date | time) else read  # --set name=2026-01-31 is a name


def parse_gpus(value: int | str | Sequence[int] | None) -> dict[str, Any]:
    """A number of GPUs, or which ones, as settings: ``2``, ``[0, 2]``, ``"0,2"``, ``"0-3"``; ``"3,"`` is GPU 3.

    Raises:
        InvalidRequest: It is none of these.
    """
    value = _plain(value)
    if value is None or value == "auto":
        return {}
    if isinstance(value, int) and not isinstance(value, bool):
        return {"gpu_count": value}
    if isinstance(value, str) and re.fullmatch(r"\d{1,6}", value.strip()):
        return {"gpu_count": int(value)}
    if isinstance(value, list):
        return {"gpu_ids": value}
    ids: list[int] = []
    for part in value.split(",") if isinstance(value, str) else [""]:
        found = re.fullmatch(r"\s*(\d{1,3})(?:-(\d{1,3}))?\s*", part)
        if found:
            ids += range(int(found[1]), int(found[2] or found[1]) + 1)
        elif part.strip() or not ids:
            reason, fix = "is neither a number of GPUs nor a list of them.", "Write 2, or 0,2, or 0-3."
            raise InvalidRequest([Fault("gpus", shown("gpus", value), reason, fix)])
    return {"gpu_ids": ids}


def parse_folder(key: str, value: str | os.PathLike[str]) -> Path:
    """A folder that somebody names, ``~`` included; it need not exist.

    Raises:
        InvalidRequest: It is no path.
    """
    try:
        path = Path(value).expanduser()
        if str(value) and "\0" not in str(value):
            return path
    except (TypeError, RuntimeError):  # neither text nor path; no such user
        pass
    raise InvalidRequest([Fault(key, shown(key, value), "is no path of a folder.", "Give a path as text.")])


def _flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if key in SECTIONS and isinstance(value, Mapping):
            yield from ((f"{key}.{name}", _plain(item)) for name, item in value.items())
        elif key in ("hyperparameters", "parameters") and isinstance(value, Mapping):
            yield from ((str(name), _plain(item)) for name, item in value.items())
        else:
            yield str(key), _plain(value)


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as plain ones, paths as text; notebooks are full of them."""
    if isinstance(value, list | tuple):
        return [_plain_item(item) for item in value]
    return _plain_item(value)


def _plain_item(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.tolist() if hasattr(value, "tolist") and hasattr(value, "shape") else value


def _opened(source: str, here: Path) -> tuple[Mapping[str, Any], Path]:
    """What a source says, and what the relative paths in it are relative to."""
    suffix = "" if "\n" in source else Path(source).suffix.lower()
    if suffix in (".yaml", ".yml"):
        fix = "Write the same keys as TOML."
        raise InvalidRequest([Fault("file", shown("file", source), "this release reads TOML job files only.", fix)])
    if suffix == ".toml":
        path = here / Path(_anchored(source, here))
        return _toml(_text_of(path, source), str(path)), path.parent
    if _TOML_TEXT.search(source):
        return _toml(source, "the job"), here
    return {"model.base": source}, here


def _text_of(path: Path, given: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        reason = "there is no such job file."
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {error}."
    raise InvalidRequest([Fault("file", shown("file", given), reason, "")])


def _toml(text: str, origin: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        fix = 'Text goes in quotes, sections in brackets: [model], then base = "./sample/smollm2".'
        reason = f"{redact(origin)} is not TOML: {redact(str(error))}."
        raise InvalidRequest([Fault("toml", "", reason, fix)]) from None


def _anchored(value: str, base_dir: Path, exists: Callable[[Path], bool] = Path.exists) -> str:
    """A path as an absolute one; what neither exists nor looks like a path stays as it is, and may be a hub id."""
    try:
        path = base_dir / Path(value).expanduser()
        if not value or not (_LIKE_A_PATH.search(value) or exists(path)):
            return value
    except (OSError, RuntimeError, ValueError):  # too long a name, no such user, a NUL: no path of anything
        return value
    return str(path.absolute())  # not resolve(): a virtual environment's interpreter is a link that must be kept
