"""A data view as HTML that needs no script: safe, for light and dark pages, and readable without its style, too.

A page that takes the style away (an untrusted notebook, a code host) still underlines what is trained, strikes what
is cut and sets control tokens apart: the elements themselves mean that. A screen reader hears where trained text
begins and ends, and finds every id in a table.
"""

from __future__ import annotations

from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from kernel_launcher.data.show import text
from kernel_launcher.data.show.view import Marks
from kernel_launcher.data.show.visible import visible, visible_pieces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_launcher.data.lint import Finding
    from kernel_launcher.data.show.tokens import Token
    from kernel_launcher.data.show.view import DataView, Part, Row, Run, State, Turn

_ELEMENTS: Mapping[State, str] = {"context": "span", "trained": "u", "cut": "s"}


def page(view: DataView) -> str:
    """The whole view."""
    return style() + _frame(view, _head(view), _rows(view))


def summary(view: DataView) -> str:
    """What there is to say of the whole data set, without a row."""
    return style() + _frame(view, _head(view))


def rows(view: DataView, *, styled: bool = True) -> str:
    """The rows alone; where something else brings the style along, without it."""
    return style() * styled + _frame(view, _rows(view))


@cache
def style() -> str:
    """How all of it looks."""
    return f"<style>{files(__package__).joinpath('style.css').read_text(encoding='utf-8')}</style>"


def _frame(view: DataView, *parts: str) -> str:
    label = escape(f"Data: {text.headline(view)}", quote=True)
    return f'<div class="veri-data" role="group" aria-label="{label}">{"".join(parts)}</div>'


def _head(view: DataView) -> str:
    numbers = " ".join(
        f"<span><i>{escape(name)}</i> <strong>{escape(value)}</strong></span>" for name, value in text.figures(view)
    )
    return (
        f"<div><strong>{escape(text.headline(view))}</strong></div>"
        f'<div class="quiet">{escape(text.settings(view))}</div><div class="figures">{numbers}</div>'
        f"{''.join(map(_finding, view.findings))}"
    )


def _finding(finding: Finding) -> str:
    badge = f"{text.GLYPHS[finding.severity]} {finding.severity}"
    return (
        f'<div class="finding"><span class="badge {finding.severity}">{badge}</span> '
        f"<code>{escape(finding.code)}</code> {escape(text.finding_line(finding))}</div>"
    )


def _rows(view: DataView) -> str:
    legend = (
        f'<div class="legend"><strong>{escape(text.kind_line(view))}</strong> <span class="tokens">'
        '<span class="run">grey: context</span> <u class="run">underlined: trained</u> '
        '<span class="run"><kbd>boxed</kbd>: control token</span> <span class="run"><s>struck</s>: cut off</span>'
        "</span></div>"
    )
    return legend + "".join(map(_row, view.rows))


def _row(shown: Row) -> str:
    title = escape(text.row_line(shown), quote=True)
    body = [f"<div>{title}</div>", *map(_part, shown.parts)]
    if shown.prompt is not None:
        prompt = f"<pre>{escape(text.prompt_text(shown.prompt))}</pre>"
        body.append(_more("the prompt, as inference sends it", prompt))
    return f'<div class="row" role="group" aria-label="{title}">{"".join(body)}</div>'


def _part(part: Part) -> str:
    turns = part.turns()
    body = [f'<div class="quiet">{escape(text.counts_line(part))}</div>', *map(_turn, turns)]
    body.append(_more("tokens and ids", _table(turns)))
    return "".join(body)


def _turn(turn: Turn) -> str:
    role = escape(turn.role, quote=True)
    stretches = "".join(_stretch(state, runs) for state, runs in turn.stretches())
    return f'<div class="turn {role}"><b>{role}</b><div class="tokens">{stretches}</div></div>'


def _stretch(state: State, runs: tuple[Run, ...]) -> str:
    """Neighbouring tokens of one state, in the element that means it."""
    element = _ELEMENTS[state]
    shown = "".join(map(_run, runs))
    if state != "context":
        shown = f"{_heard(f'{state}: ')}{shown}{_heard(f' end of {state}. ')}"
    return f'<{element} class="run">{shown}</{element}>'


def _run(run: Run) -> str:
    gap = f" [{run.hidden:,} tokens more] " if run.hidden else ""
    shown = f"{_tokens(run.first)}{gap}{_tokens(run.last)}"
    return f"<kbd>{shown}</kbd>" if run.marks.special else shown


def _heard(words: str) -> str:
    return f'<span class="hear">{words}</span>'


def _tokens(tokens: tuple[Token, ...]) -> str:
    pieces = visible_pieces(token.text for token in tokens)
    return "".join(
        f'<span title="{_title(token)}">{escape(piece)}</span>' for token, piece in zip(tokens, pieces, strict=True)
    )


def _title(token: Token) -> str:
    part = f" bytes {token.part}" if token.part else ""
    return escape(f"{token.id}{part} {', '.join(_words(token))}", quote=True)


def _words(token: Token) -> list[str]:
    said = {"context": "not trained", "trained": "trained", "cut": "cut off"}[Marks.of(token).state]
    return [
        token.role or "template",
        said,
        *["control token"] * token.special,
        *["goes on with the character before"] * (not token.text),
    ]


def _table(turns: tuple[Turn, ...]) -> str:
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("whose", "state", "ids and tokens"))
    rows = "".join(map(_ids, (run for turn in turns for run in turn.runs if run.first)))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _ids(run: Run) -> str:
    who, *what = _words(run.first[0])
    tokens = (*run.first, *run.last)
    named = " ".join(f"<b>{token.id}</b> {escape(visible(token.text).rstrip())}" for token in tokens)
    return f"<tr><td>{escape(who)}</td><td>{', '.join(what)}</td><td>{named}</td></tr>"


def _more(name: str, body: str) -> str:
    return f"<details><summary>{name}</summary>{body}</details>"
