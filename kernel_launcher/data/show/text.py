"""A data view in words, and as text for a terminal.

Marks, not colours alone, tell what is what: ⟦trained⟧, ⟪control token⟫, ✂cut off✂. Rows cannot bring these marks
along, nor anything that a terminal would act on.
"""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING

from kernel_launcher.data.rows.faults import counted
from kernel_launcher.data.show.visible import CONTROL, CUT, TRAINED, foreign, visible, visible_pieces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_launcher.data.lint import Finding
    from kernel_launcher.data.show.view import DataView, Part, Row, Run, State, Turn

LEGEND = " · ".join(["trained".join(TRAINED), "control token".join(CONTROL), "cut off".join(CUT)])
GLYPHS = {"error": "✗", "warning": "!"}
_NAMED_ROWS = 10
_PROMPT_SHOWN = 4000
# What stands around each, and how a terminal shows it: faint, underlined, struck.
_STATES: Mapping[State, tuple[tuple[str, str], str]] = {
    "context": (("", ""), "2"),
    "trained": (TRAINED, "4"),
    "cut": (CUT, "9"),
}


def headline(view: DataView) -> str:
    """What was looked at, for which model."""
    rows = counted(view.rows_seen, "row") if view.complete else f"the first {counted(view.rows_seen, 'row')}"
    return f"{visible(view.source)} for {visible(view.model)}: {rows}"


def settings(view: DataView) -> str:
    """What decides which tokens there are, and which are trained."""
    formats = ", ".join(f"{name}: {counted(count, 'row')}" for name, count in view.formats.items())
    asked = ", ".join(f"{key} = {visible(str(value))}" for key, value in view.settings.items())
    return f"{formats}; {asked}"


def figures(view: DataView) -> list[tuple[str, str]]:
    """Lengths and what they cost: a name and a number each."""
    found = view.lengths
    share = found["trained_tokens"] / found["tokens"] if found["tokens"] else 0.0
    in_answers = f", {found['answer_cut']:,} in an answer" if found["answer_cut"] else ""
    said = [
        ("tokens p50", f"{found['p50']:,}"),
        ("p95", f"{found['p95']:,}"),
        ("max", f"{found['max']:,}"),
        ("trained", f"{share:.0%}"),
        ("cut", f"{counted(found['cut'], 'row')}{in_answers}"),
    ]
    dropped = found["dropped_by_reason"].items()
    said += [("left out", f"{counted(count, 'row')} ({reason.replace('_', ' ')})") for reason, count in dropped]
    said.append((f"padding at micro batch {view.micro_batch_size}", f"{found['padding_share']:.0%}"))
    if found["packing_saves"] is not None:
        said.append(("packing", f"{found['packing_rows']:.1f} rows a sequence, saves {found['packing_saves']:.0%}"))
    return said


def finding_line(finding: Finding) -> str:
    """One finding: what, where, and what to do."""
    rows = ", ".join(f"{row:,}" for row in finding.rows[:_NAMED_ROWS])
    more = finding.count - min(len(finding.rows), _NAMED_ROWS)
    where = (
        f" (row{'s' if finding.count > 1 else ''} {rows}{f' and {more:,} more' if more > 0 else ''})" if rows else ""
    )
    return visible(f"{finding.message}{where} {finding.fix}".rstrip())


def kind_line(view: DataView) -> str:
    """Which rows are shown, of how many."""
    if not view.of_kind:
        return f"No row is {view.kind}." if view.kind in ("cut", "suspicious") else "No row."
    return f"{view.kind}: {len(view.rows):,} of {counted(view.of_kind, 'row')}"


def row_line(row: Row) -> str:
    """The number of a row, and what there is to say of it."""
    return visible(" · ".join([f"row {row.number:,}", *row.why]))


def counts_line(part: Part) -> str:
    """How many tokens a sequence has, and what becomes of them."""
    counts = part.counts
    name = f"{part.name}: " if part.name else ""
    cut = f", {counts['cut']:,} cut" if counts["cut"] else ""
    return f"{name}{counted(counts['tokens'], 'token')}, {counts['trained']:,} trained{cut}"


def prompt_text(prompt: str) -> str:
    """A prompt to show, without the middle of a long one."""
    half = _PROMPT_SHOWN // 2
    if len(prompt) <= _PROMPT_SHOWN:
        return visible(prompt)
    return f"{visible(prompt[:half])} [{len(prompt) - 2 * half:,} characters more] {visible(prompt[-half:])}"


def text(view: DataView, *, colour: bool = False) -> str:
    """The view for a terminal, or for a file where ``colour`` is left out."""
    lines = [headline(view), settings(view), " · ".join(" ".join(pair) for pair in figures(view))]
    lines += [
        f"{GLYPHS[finding.severity]} {finding.severity} {finding.code}: {finding_line(finding)}"
        for finding in view.findings
    ]
    head = [*map(foreign, lines), "", f"{kind_line(view)}    {LEGEND}"]
    return "\n".join([*head, *(_row(row, colour=colour) for row in view.rows)])


def _row(row: Row, *, colour: bool) -> str:
    lines = ["", foreign(row_line(row)), *(_part(part, colour=colour) for part in row.parts)]
    if row.prompt is not None:
        prompt = foreign(prompt_text(row.prompt)).removesuffix("\n")
        lines += ["  the prompt, as inference sends it", indent(prompt, "    | ")]
    return "\n".join(lines)


def _part(part: Part, *, colour: bool) -> str:
    lines = [f"  {counts_line(part)}"]
    for turn in part.turns():
        lines += [f"  {turn.role}", indent(_turn(turn, colour=colour), "    ")]
    return "\n".join(lines)


def _turn(turn: Turn, *, colour: bool) -> str:
    stretches = (_stretch(state, runs, colour=colour) for state, runs in turn.stretches())
    return "".join(stretches).removesuffix("\n")


def _stretch(state: State, runs: tuple[Run, ...], *, colour: bool) -> str:
    (opening, closing), look = _STATES[state]
    body = "".join(map(_run, runs))
    said = body.removesuffix("\n")
    said = f"{opening}{said}{closing}{body[len(said) :]}"
    if not colour:
        return said
    # Line by line, so that what stands before a line keeps its own look.
    return "\n".join(f"\x1b[{look}m{line}\x1b[0m" if line else "" for line in said.split("\n"))


def _run(run: Run) -> str:
    first, last = ("".join(visible_pieces(token.text for token in tokens)) for tokens in (run.first, run.last))
    gap = f" [{run.hidden:,} tokens more] " if run.hidden else ""
    said = f"{foreign(first)}{gap}{foreign(last)}"
    return said.join(CONTROL) if run.marks.special else said
