"""Where a chat template comes from: a model's folder, a file, or one of ours by name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.protocol.files import read_json
from kernel_launcher.secrets import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY = "method.chat_template"
_DEFAULT = "default"
_BOS = "{{- bos_token }}\n"


def template_names() -> tuple[str, ...]:
    """The templates that can be named, each a file of this package."""
    return tuple(sorted(path.name.removesuffix(".jinja") for path in files(__name__).iterdir() if _is_one(path.name)))


def read_template(given: str, *, adds_bos: bool = False) -> str:
    """The text of a template that is given as a name of ours or as a file.

    Args:
        given: The name, or the path.
        adds_bos: Whether the tokenizer puts a BOS before plain text. The model saw it before every text, so a
            template of ours that is for any model begins with it, too.

    Raises:
        InvalidRequest: There is no such name or file, or it is no jinja template.
    """
    if given in template_names():
        source = files(__name__).joinpath(f"{given}.jinja").read_text(encoding="utf-8")
        return _BOS + source if adds_bos and "bos_token" not in source else source
    try:
        source = Path(given).read_text(encoding="utf-8")
        broken = _broken(source)
    except UnicodeDecodeError:
        reason = "is not UTF-8 text."
    except (OSError, ValueError):
        reason = "is neither a file nor a name."
    else:
        if broken is None:
            return source
        reason = f"is no jinja template: {broken}"
    fix = f"Give the path of a jinja file, or one of {', '.join(template_names())}, or leave it out."
    raise InvalidRequest([Fault(_KEY, shown(_KEY, given), reason, fix)])


def templates_in(folder: Path) -> Mapping[str, str]:
    """The chat templates that a model folder comes with, by name; transformers calls the usual one ``default``.

    Of the files that transformers knows, ``chat_template.json`` is a multimodal processor's; its tokenizers do not
    read it.
    """
    found = {path.stem: path for path in sorted(folder.glob("additional_chat_templates/*.jinja"))}
    if (folder / "chat_template.jinja").is_file():
        found[_DEFAULT] = folder / "chat_template.jinja"
    if found:
        return {name: path.read_text(encoding="utf-8") for name, path in found.items()}
    config = read_json(folder / "tokenizer_config.json")
    stored = config.get("chat_template") if isinstance(config, dict) else None
    if isinstance(stored, list):
        return {one["name"]: one["template"] for one in stored}
    if isinstance(stored, dict):
        return stored
    return {_DEFAULT: stored} if isinstance(stored, str) and stored else {}


def default_template(templates: Mapping[str, str], model: object) -> str | None:
    """The template that is used unless another is named; None where there is none.

    Raises:
        InvalidRequest: There are several, and none of them is the default.
    """
    if not templates or _DEFAULT in templates:
        return templates.get(_DEFAULT)
    reason = f"{model} has the chat templates {', '.join(templates)}, and none of them is its default."
    fix = "Name the file of the one that you mean, or one of " + ", ".join(template_names()) + "."
    raise InvalidRequest([Fault(_KEY, "", reason, fix)])


def _broken(source: str) -> str | None:
    """What jinja2 says against a template."""
    from jinja2 import TemplateSyntaxError

    from kernel_launcher.data.chat.sandbox import environment

    try:
        environment().parse(source)
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    return None


def _is_one(name: str) -> bool:
    return name.endswith(".jinja")
