"""Readers: a job from TOML, a dict or keyword arguments, with overrides; all faults of one request together."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.secrets import redact, shown
from kernel_launcher.spec.faults import unknown
from kernel_launcher.spec.job import JobSpec
from kernel_launcher.spec.names import SECTIONS, locate


@dataclass(slots=True)
class _Draft:
    """Sections on their way to a spec; later layers win over earlier ones, aliases must agree within a layer."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def layer(self, settings: Mapping[str, Any]) -> None:
        """Take in settings, nested by section or bare."""
        given: dict[str, tuple[str, Any]] = {}
        for key, value in _flat(settings):
            dotted = locate(key)
            if dotted is None:
                self.faults.append(unknown(key, value))
                continue
            if dotted in given and given[dotted][1] != value:
                other, other_value = given[dotted]
                reason = f"differs from {other} = {shown(other, other_value)}, which is the same setting."
                self.faults.append(Fault(key, shown(key, value), reason, f"Keep {dotted}."))
                continue
            given[dotted] = (key, value)
        for dotted, (_, value) in given.items():
            section, _, name = dotted.partition(".")
            self.sections.setdefault(section, {})[name] = _plain(value)

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
        settings: Keyword arguments: bare names, with None for unset.
        overrides: ``--set`` pairs: bare or dotted names.
        base_dir: What relative paths in ``source`` text, ``settings`` and ``overrides`` are relative to (default:
            the working directory); those in a file are relative to the file.

    Raises:
        InvalidRequest: With all faults at once.
    """
    here = (base_dir or Path.cwd()).resolve()
    draft = _Draft()
    file_dir = here
    if isinstance(source, Mapping):
        draft.layer(source)
    elif source is not None:
        path = _job_file(str(source), here)
        if path is not None:
            file_dir = path.parent
            draft.layer(_toml(_text_of(path), str(path)))
        elif _is_toml_text(str(source)):
            draft.layer(_toml(str(source), "the job"))
        else:
            draft.layer({"base_model": str(source)})
    _anchor(draft.sections, file_dir)
    for layer in (settings, overrides):
        if layer:
            before = {name: dict(section) for name, section in draft.sections.items()}
            draft.layer({key: value for key, value in layer.items() if value is not None})
            _anchor(draft.sections, here, unless=before)
    return draft.spec()


def parse_override(text: str) -> tuple[str, Any]:
    """``KEY=VALUE`` as a pair; the value is read as TOML (``8``, ``true``, ``[1, 2]``), or else taken as text.

    Raises:
        InvalidRequest: There is no ``=``, or no key.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InvalidRequest([Fault("--set", shown("--set", text), "not KEY=VALUE.", "Write --set lora_rank=8.")])
    try:
        return key.strip(), tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def parse_gpus(value: int | str | Sequence[int] | None) -> dict[str, Any]:
    """A number of GPUs, or which ones, as settings: ``2``, ``[0, 2]``, ``"0,2"``, ``"0-3"``; ``"3,"`` is GPU 3.

    Raises:
        InvalidRequest: It is none of these.
    """
    if value is None or value == "auto":
        return {}
    if isinstance(value, int) and not isinstance(value, bool):
        return {"gpu_count": value}
    if isinstance(value, str) and re.fullmatch(r"\d{1,6}", value.strip()):
        return {"gpu_count": int(value)}
    if isinstance(value, list | tuple):
        return {"gpu_ids": list(value)}
    ids: list[int] = []
    for part in value.split(",") if isinstance(value, str) else [""]:
        found = re.fullmatch(r"\s*(\d{1,3})(?:-(\d{1,3}))?\s*", part)
        if found:
            ids += range(int(found[1]), int(found[2] or found[1]) + 1)
        elif part.strip() or not ids:
            reason, fix = "is neither a number of GPUs nor a list of them.", "Write 2, or 0,2, or 0-3."
            raise InvalidRequest([Fault("gpus", shown("gpus", value), reason, fix)])
    return {"gpu_ids": ids}


def _flat(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in settings.items():
        if key in SECTIONS and isinstance(value, Mapping):
            pairs += [(f"{key}.{name}", item) for name, item in value.items()]
        elif key in ("hyperparameters", "parameters") and isinstance(value, Mapping):
            pairs += [(str(name), item) for name, item in value.items()]
        else:
            pairs.append((str(key), value))
    return pairs


def _plain(value: Any) -> Any:
    """A numpy scalar as the number it is; notebooks are full of them."""
    item = getattr(value, "item", None)
    return item() if item is not None and getattr(value, "shape", None) == () else value


def _job_file(source: str, here: Path) -> Path | None:
    if "\n" in source:
        return None
    path = here / Path(source).expanduser()
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        fix = "Write the same keys as TOML."
        raise InvalidRequest([Fault("file", shown("file", source), "this release reads TOML job files only.", fix)])
    if suffix == ".toml":
        if not path.is_file():
            raise InvalidRequest([Fault("file", shown("file", source), "there is no such job file.", "")])
        return path
    return None


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest([Fault("file", str(path), f"cannot be read: {error}.", "")]) from None


def _is_toml_text(source: str) -> bool:
    return "\n" in source or "=" in source or source.strip().startswith("[")


def _toml(text: str, origin: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        fix = 'Text goes in quotes, sections in brackets: [model], then base = "./sample/smollm2".'
        raise InvalidRequest([Fault("toml", "", f"{origin} is not TOML: {redact(str(error))}.", fix)]) from None


_PATHS = (("model", "base"), ("dataset", "id"), ("resources", "python"))


def _anchor(
    sections: dict[str, dict[str, Any]], base_dir: Path, unless: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Make relative paths absolute: those that exist, or that cannot be a hub id."""
    for section, name in _PATHS:
        value = sections.get(section, {}).get(name)
        if not isinstance(value, str) or not value or (unless and unless.get(section, {}).get(name) == value):
            continue
        path = base_dir / Path(value).expanduser()
        if path.exists() or value.startswith(("./", "../", "~", "/")):
            # Not resolve(): the interpreter of a virtual environment is a link that must be kept.
            sections[section][name] = str(path if path.is_absolute() else path.absolute())
