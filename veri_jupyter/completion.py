"""What Tab offers on the line of a magic, and in the TOML of its cell."""

from __future__ import annotations

import re
from types import ModuleType
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from veri_jupyter.magics import MAGICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from veri_jupyter.options import Parser

    Shell = Any

_LINE = re.compile(r"^\s*%{1,2}(veri_\w+)\s+(.*)$")
_SECTION = re.compile(r"^\s*\[\s*(\w+)\s*\]", re.MULTILINE)


def load(shell: Shell) -> None:
    """Offer completions in this shell."""
    shell.Completer.custom_matchers.append(_matcher(shell))


def unload(shell: Shell) -> None:
    """Offer them no more."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if getattr(matcher, "matcher_identifier", None) != __name__]


def _matcher(shell: Shell) -> Callable[[CompletionContext], SimpleMatcherResult]:
    @context_matcher(identifier=__name__)  # type: ignore[untyped-decorator]
    def matcher(context: CompletionContext) -> SimpleMatcherResult:
        fragment, found = _offers(shell, context)
        completions = [SimpleCompletion(text) for text in found if text.startswith(fragment)]
        return {"completions": completions, "matched_fragment": fragment, "suppress": bool(completions)}

    offered: Callable[[CompletionContext], SimpleMatcherResult] = matcher
    return offered


def _offers(shell: Shell, context: CompletionContext) -> tuple[str, Iterable[str]]:
    """What is being typed, and what it may become."""
    if found := _LINE.match(context.text_until_cursor):
        name, typed = found.groups()
        if name in MAGICS:
            *words, fragment = re.split(r"\s+", typed)
            if fragment.startswith("--") and "=" in fragment:  # --gpus=2 is --gpus 2
                option, _, fragment = fragment.partition("=")
                words.append(option)
            if words[-1:] == ["--set"] and "=" in fragment:
                key, _, fragment = fragment.partition("=")
                return fragment, _named(key)
            return fragment, _on_line(shell, MAGICS[name][0], words, fragment)
    elif (cell := re.match(r"\s*%%veri_(train|plan)\b", context.full_text)) and context.cursor_line:
        return _in_toml(context, _sections(planned=cell[1] == "plan"))
    return "", ()


def _on_line(shell: Shell, parser: Parser, words: list[str], fragment: str) -> Iterable[str]:
    actions = {flag: action for action in parser.actions for flag in action.option_strings}
    before = actions.get(words[-1]) if words else None
    if before is not None and before.nargs != 0:
        return before.choices or _values(shell, str(before.metavar))
    if fragment.startswith("-"):
        return [flag for flag in actions if flag not in words or flag == "--set"]
    place = next((action for action in parser.actions if not action.option_strings), None)
    return () if place is None else _values(shell, str(place.metavar))


def _values(shell: Shell, what: str) -> Iterable[str]:
    match what:
        case "ID":
            from kernel_launcher.protocol import index

            entries = index.entries()
            return dict.fromkeys(["last", *(entry.name for entry in entries), *(entry.id for entry in entries)])
        case "VAR":
            hidden = shell.user_ns_hidden
            return [
                name
                for name, value in shell.user_ns.items()
                if not (name.startswith("_") or name in hidden or isinstance(value, ModuleType) or callable(value))
            ]
        case "TYPE":
            from kernel_launcher.facts import gpu_names

            return gpu_names()
        case "KEY=VALUE":
            return [f"{key}=" for keys in _sections().values() for key in keys]
    return ()


def _in_toml(context: CompletionContext, sections: dict[str, list[str]]) -> tuple[str, Iterable[str]]:
    line = context.text_until_cursor
    if opened := re.fullmatch(r"\s*\[\s*(\w*)", line):
        return opened[1], sections
    if value := re.fullmatch(r"\s*(\w+)\s*=(.*?)(\w*)", line):
        key, before, fragment = value.groups()
        return fragment, [name if before.count('"') % 2 else f'"{name}"' for name in _named(key)]
    key = re.fullmatch(r"\s*(\w*)", line)
    above = "\n".join(context.full_text.split("\n")[1 : context.cursor_line])
    headings = _SECTION.findall(above)
    if key is None or not headings:
        return "", ()
    return key[1], [f"{name} = " for name in sections.get(headings[-1], ())]


def _named(key: str) -> Iterable[str]:
    """The values of a setting that takes one of ours by name."""
    from kernel_launcher.data.chat.templates import template_names
    from kernel_launcher.spec.findings import ACCEPTABLE

    match key.rpartition(".")[2]:
        case "chat_template":
            return template_names()
        case "allow":
            return ACCEPTABLE
    return ()


def _sections(*, planned: bool = False) -> dict[str, list[str]]:
    """Each section of a job file with its settings that this release has, or can plan."""
    from kernel_launcher.spec.fields import NotYet
    from kernel_launcher.spec.names import SECTIONS

    return {
        section: [
            name
            for name, field in model.model_fields.items()
            if not any(isinstance(mark, NotYet) and not (planned and mark.planned) for mark in field.metadata)
        ]
        for section, model in SECTIONS.items()
    }
