"""The picture of a state as HTML: verdict, figures, memory by term; why this stage; how it was decided. Pure.

Every text is escaped. What is planned is outlined; where settings are refused, the last plan stays in sight, veiled.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from kernel_launcher.planner.card import bar
from kernel_launcher.planner.verdict import GIB, Fit
from veri_jupyter.explorer.data import in_tokens, total_steps
from veri_jupyter.monitor.trouble import in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernel_launcher.errors import Fault
    from kernel_launcher.planner import Plan
    from veri_jupyter.explorer.data import Rows
    from veri_jupyter.explorer.state import Judged
    from veri_jupyter.explorer.ways import StageReason

_BADGES = {
    Fit.FITS: ("✓", "fits"),
    Fit.TIGHT: ("!", "tight"),
    Fit.DOES_NOT_FIT: ("✗", "no"),
    Fit.CANNOT_SAY: ("?", "unknown"),
}


def verdict(judged: Judged, rows: Rows) -> str:
    """Two lines that stay in sight: whether it fits and where it is worst, steps and rows; or why it is refused."""
    plan = judged.plan
    if plan is not None:
        return _verdict(plan) + _figures(plan, judged, rows)
    if judged.awaits_model:
        badge = '<span class="vx-badge unknown">? NO MODEL</span>'
        return f'<div class="vx-verdict" role="status">{badge}<span>Name a folder, or an id on the hub.</span></div>'
    return _refusal(judged.faults)


def broken(error: Exception) -> str:
    """In the place of the verdict, where drawing itself went wrong."""
    badge = '<span class="vx-badge no">✗ NOT DRAWN</span>'
    said = f"{in_words(error)}. Undo, or change another setting; running the cell again starts anew."
    return f'<div class="vx-verdict" role="alert">{badge}<span>{escape(said)}</span></div>'


def memory(plan: Plan | None, *, stale: bool) -> str:
    """The memory of one GPU by term; that of the last plan, veiled, where the settings have none."""
    if plan is None:
        return '<div class="vx-memory"></div>'
    drawn = bar(plan.peak_terms, plan.estimate.budget_bytes, plan.outlook.limit)
    veil = ' vx-stale" aria-hidden="true' if stale else ""
    empty = '<div class="vx-quiet">No picture: the memory model does not know these layers.</div>'
    return f'<div class="vx-memory{veil}">{drawn or empty}</div>'


def why(plan: Plan, reasons: Sequence[StageReason]) -> str:
    """Each stage with its reason, and the plan's warnings."""
    lines = ["<h4>Why this stage</h4>", *map(_stage, reasons)] if reasons else []
    lines += [f'<div class="vx-warning">⚠ {escape(warning)}</div>' for warning in plan.warnings]
    return "".join(lines)


def decided(plan: Plan) -> str:
    """How the open settings were decided, and the plan line."""
    filled = "".join(f"<li>{escape(str(default))}</li>" for default in plan.defaults)
    traced = "".join(f"<li>{escape(line)}</li>" for line in plan.trace)
    return f"<pre>{escape(plan.line)}</pre><h4>Stage</h4><ul>{traced}</ul><h4>Filled in</h4><ul>{filled}</ul>"


def hint(text: str, fault: Fault | None = None) -> str:
    """The line below a control: what it is, or why its value is refused."""
    if fault is None:
        return f'<span class="vx-hint">{escape(text)}</span>'
    return f'<span class="vx-hint vx-fault" role="alert">✗ {escape(f"{fault.reason} {fault.fix}".strip())}</span>'


def note(text: str) -> str:
    """A quiet line."""
    return f'<span class="vx-hint">{escape(text)}</span>'


def _verdict(plan: Plan) -> str:
    found = plan.verdict
    glyph, tone = _BADGES[found.fit]
    badge = f'<span class="vx-badge {tone}">{glyph} {escape(found.fit.upper())}</span>'
    if found.needed_bytes is None:
        return f'<div class="vx-verdict" role="status">{badge}<span>{escape(found.reason)}</span></div>'
    over = found.needed_bytes - found.limit_bytes
    more = f", {over / GIB:.1f} too much" if found.fit is Fit.DOES_NOT_FIT else ""
    size = (
        f"<strong>{found.needed_bytes / GIB:.1f}</strong> of {found.limit_bytes / GIB:.1f} GiB per rank{more}, "
        f"±{found.band_bytes / GIB:.1f}"
    )
    how = str(plan.outlook.traced) if plan.outlook.is_measured else f"most of it {found.term}"
    where = escape(f"worst: {found.phase}, {how}")
    where = f'<span class="vx-quiet" title="{where}">{where}</span>'
    return f'<div class="vx-verdict" role="status">{badge}<span>{size}</span>{where}</div>'


def _figures(plan: Plan, judged: Judged, rows: Rows) -> str:
    method = plan.method
    gpus = f"{plan.world_size} x {plan.resources.gpu_type}"
    if any(fault.key.startswith("resources.") for fault in judged.not_here):
        gpus += " (not here)"
    ranks = "1 rank" if plan.world_size == 1 else f"{plan.world_size} ranks"
    batch = f"{ranks} x {method.micro_batch_size} x {method.gradient_accumulation_steps}"
    steps = total_steps(plan, rows.count)
    found = [gpus, f"{_rows(method.global_batch_size or 0)} a step = {batch}"]
    if steps is not None:
        found.insert(1, f"{steps:,} steps")
    if rows.count is not None and method.num_epochs is not None and method.max_steps is None:
        found.append(f"{_rows(rows.count)} x {method.num_epochs:g} epoch{'s' if method.num_epochs != 1 else ''}")
    elif rows.count is not None:
        found.append(_rows(rows.count))
    tokens = "tokens a row: being counted…" if rows.are_counted else ""
    if rows.lengths is not None:
        tokens = in_tokens(plan, rows.lengths)
    spans = "".join(f"<span>{escape(text)}</span>" for text in found)
    whole = escape(" | ".join(filter(None, [*found, tokens])))  # where the line is too short for them
    # A line of its own, so that nothing moves when they are counted.
    last = f'<span class="vx-tokens">{escape(tokens)}</span>' if tokens else ""
    return f'<div class="vx-figures" title="{whole}">{spans}{last}</div>'


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _refusal(faults: Iterable[Fault]) -> str:
    listed = list(faults)
    count = "1 setting" if len(listed) == 1 else f"{len(listed)} settings"
    lines = "".join(f"<li>{escape(str(fault))}</li>" for fault in listed)
    badge = '<span class="vx-badge no">✗ REFUSED</span>'
    head = f'<div class="vx-verdict" role="status">{badge}<span>{count} to mend</span></div>'
    return f'{head}<ul class="vx-faults">{lines}</ul>'


def _stage(each: StageReason) -> str:
    mark = "●" if each.chosen else "○"
    tone = "" if each.chosen else " vx-quiet"
    word = "this plan: " if each.chosen else ""
    return f'<div class="vx-stage{tone}">{mark} <b>zero_stage {each.stage}</b> {word}{escape(each.reason)}</div>'
