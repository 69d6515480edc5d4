"""The parts of the dashboard that are text: one function each, from a moment to HTML. Pure; all text is escaped."""

from __future__ import annotations

from datetime import datetime, timedelta
from html import escape
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING

from kernel_launcher.protocol.files import readable
from kernel_launcher.protocol.fold import RankView
from kernel_launcher.protocol.states import Status
from kernel_launcher.protocol.summary import MOST_RANKS_LISTED, QUIET_SECONDS, duration, size
from veri_jupyter.monitor.chart import newest
from veri_jupyter.monitor.spark import number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from veri_jupyter.monitor.moment import Moment


def status(moment: Moment) -> str:
    """One line: how it stands, how far, how long, when it was heard of; and the veil of a view left alone."""
    summary = moment.summary
    over = summary.status.is_terminal
    tone = summary.status.value
    # The headline of a failure has its own line below; here it would push everything else away.
    progress = _ended(moment) if over else summary.progress
    more = "" if over else "".join(f" · {text}" for text in [*_finish(moment), *_epoch(moment)])
    seen = "" if over else _seen(summary.quiet_seconds)
    veil = "" if over else _veil(moment)
    label = escape(f"Job {summary.name}: {summary.word}, {progress}{more}", quote=True)
    return (
        f'<div class="{"" if over else "veri-live"}">{veil}'
        f'<div class="veri-status" role="group" aria-label="{label}">'
        f'<span class="veri-badge {tone}">{summary.glyph} {escape(summary.word)}</span>'
        f'<span class="veri-name" title="{escape(summary.id, quote=True)}">{escape(summary.name)}</span>'
        f'<span class="veri-progress" title="{escape(progress + more, quote=True)}">{escape(progress)}'
        f'<span class="veri-optional">{escape(more)}</span></span>{seen}</div></div>'
    )


def heard(moment: Moment) -> str:
    """What a screen reader says when the state changes, and only then."""
    return f'<div class="veri-heard" role="status">Job {escape(moment.summary.name)} is {moment.summary.word}</div>'


def figures(moment: Moment) -> str:
    """What was measured last, as the lines of the charts end, each at its place from the first step on."""
    cells = [
        ("loss", _figure(_loss(moment)), _change(moment)),
        ("evaluation", *_evaluation(moment)),
        ("tokens/s", _figure(newest(moment, "tokens_per_second"), "{:,.0f}"), _busy(moment)),
        ("learning rate", _figure(newest(moment, "learning_rate")), ""),
        ("gradient norm", _figure(newest(moment, "grad_norm")), ""),
    ]
    if moment.is_dpo:
        cells[1:1] = [
            ("margin", _figure(newest(moment, "rewards/margins")), ""),
            ("accuracy", _figure(newest(moment, "rewards/accuracies"), "{:.0%}"), ""),
        ]
    shown = "".join(
        f'<div><span class="label">{label}</span><span class="value">{escape(value)}</span>'
        f'<span class="more">{escape(more)}</span></div>'
        for label, value, more in cells
    )
    return f'{_bar(moment)}<div class="veri-figures">{shown}</div>{_notes(moment)}'


def memory(moment: Moment) -> str:
    """Bytes of each rank: planned as an outline, measured solid; of many ranks the least, the middle, the most."""
    planned = moment.planned
    known = dict(_ranks(moment))
    # A rank that is planned has its place before it reports, so that nothing moves.
    places = sorted({*known, *range(planned.ranks if planned.peak_bytes else 0)})
    found = [(f"rank {place}", known.get(place, RankView())) for place in places]
    ranks = [(name, each.memory_bytes, each.peak_memory_bytes) for name, each in found]
    if len(ranks) > MOST_RANKS_LISTED:
        now, most = [row[1] for row in ranks], [row[2] for row in ranks]
        ranks = [(name, int(pick(now)), int(pick(most))) for name, pick in _PICKS.items()]
    full = max([planned.limit_bytes, planned.peak_bytes, *(most for *_, most in ranks)], default=0)
    key = '<span class="veri-key measured"></span>now<span class="veri-key most"></span>most so far'
    if planned.peak_bytes:
        key += f'<span class="veri-key planned"></span>planned {size(planned.peak_bytes)}'
    limit = f" of {size(planned.limit_bytes)}" if planned.limit_bytes else ""
    rows = "".join(_rank(name, now, most, planned.peak_bytes, full) for name, now, most in ranks)
    where = "GPU memory" if planned.on_gpu else "Memory"
    return (
        f"<h4>{where}<small>each rank{limit}</small></h4>{rows or _nothing('No rank has reported yet.')}"
        f'<div class="veri-rank" style="display: block; color: var(--v-quiet)">{key}</div>'
    )


def caption(moment: Moment) -> str:
    """What the lines of the chart are; over a chart that has none yet, what is awaited."""
    marks = '<span class="veri-key eval"></span>evaluation' if moment.evaluations("loss") else ""
    return (
        f'<h4>Loss<small><span class="veri-key raw"></span>each step'
        f'<span class="veri-key smooth"></span>mean of about {moment.span}{marks}</small></h4>{_awaited(moment)}'
    )


def against_plan(moment: Moment) -> str:
    """What was expected beside what came."""
    planned, view = moment.planned, moment.view
    peaks = [rank.peak_memory_bytes for _, rank in _ranks(moment)]
    rows = []
    if planned.peak_bytes:
        band = f"{size(planned.peak_bytes)} ± {size(planned.band_bytes)}"
        found = f"{size(max(peaks))} ({max(peaks) / planned.peak_bytes - 1:+.0%})" if peaks else "not yet"
        rows_of = f", rows of {planned.length:,} tokens at most" if planned.length else ""
        rows.append(("memory of a rank at its worst", f"{band}, {planned.phase}{rows_of}", found))
    knobs = view.resolved_parallelism
    if knobs.get("data_parallel_size"):
        rows.append(("ranks", str(knobs["data_parallel_size"]), str(len(view.ranks)) if view.ranks else "not yet"))
    if view.total_steps:
        rows.append(("steps", str(view.total_steps), str(view.step)))
    head = '<tr><th scope="col"></th><th scope="col">planned</th><th scope="col">measured</th></tr>'
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f'<td class="number">{escape(readable(cell))}</td>' for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    line = f"<p><code>{escape(readable(view.plan_line))}</code></p>" if view.plan_line else ""
    return (f"<table>{head}{body}</table>" if rows else _nothing("There is no plan to compare with.")) + line


def log(lines: Sequence[str]) -> str:
    """The last lines of the job's logs."""
    if not lines:
        return _nothing("Nothing was written yet.")
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def no_step(moment: Moment) -> str:
    """What a pane says that has no step to show."""
    return _nothing("No step was done." if moment.view.status.is_terminal else "No step yet.")


def no_samples(moment: Moment) -> str:
    """What a pane says that has no answers to show."""
    if moment.planned.has_samples and not moment.view.status.is_terminal:
        return _nothing("No answers yet.")
    return _nothing("This run takes no samples." if not moment.planned.has_samples else "This run took no samples.")


def _awaited(moment: Moment) -> str:
    if moment.view.steps:
        return ""
    if moment.view.status.is_terminal:
        return f'<div class="veri-wait veri-awaited">{no_step(moment)}</div>'
    said = f"<div>{escape(moment.summary.progress)}</div><div>the curve begins after step 1</div>"
    return f'<div class="veri-wait veri-awaited"><div>{said}</div></div>'


def _bar(moment: Moment) -> str:
    percent = round(100 * moment.summary.share, 1)
    return (
        '<div class="veri-bar" role="progressbar" aria-label="steps" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{percent:g}"><div class="{moment.summary.status}" style="width: {percent}%"></div></div>'
    )


_PICKS: dict[str, Callable[[list[int]], float]] = {"least": min, "median": median, "most": max}


def _nothing(text: str) -> str:
    return f'<div class="veri-empty">{escape(text)}</div>'


def _ranks(moment: Moment) -> list[tuple[int, RankView]]:
    return [(rank, each) for rank, each in sorted(moment.view.ranks.items()) if each.peak_memory_bytes]


def _rank(name: str, now: int, most: int, planned: int, full: int) -> str:
    def share(count: int) -> str:
        return f"{100 * count / full:.1f}%"

    outline = f'<div class="plan" style="width: {share(planned)}"></div>' if planned else ""
    mark = f'<div class="most" style="left: {share(most)}"></div>' if most else ""
    value = f"<b>{_without_unit(now, most)}</b> / {size(most)}" if most else "—"
    over = " over" if planned and most > planned else ""
    return (
        f'<div class="veri-rank"><span class="label">{name}</span><div class="veri-track" role="img" '
        f'aria-label="{name}: {size(now)}, at most {size(most)}">'
        f'<div class="now" style="width: {share(now)}"></div>{mark}{outline}</div>'
        f'<span class="value{over}">{value}</span></div>'
    )


def _without_unit(count: int, beside: int) -> str:
    """A size beside another one, which says the unit for both."""
    text, unit = size(count).split(" ")
    return text if size(beside).endswith(unit) else f"{text} {unit}"


def _loss(moment: Moment) -> float | None:
    """The loss as its line ends; where the newest one is not finite, that."""
    line_end = newest(moment, "loss")
    return moment.summary.loss if line_end is None else line_end


def _change(moment: Moment) -> str:
    """How the loss changed over the last fiftieth of the run, by means of as many steps."""
    losses = moment.view.series.get("loss")
    if not losses or len(losses) < 2 * moment.span:
        return ""
    recent, before = losses[-moment.span :], losses[-2 * moment.span : -moment.span]
    change = sum(recent) / len(recent) - sum(before) / len(before)
    return f"{change:+.2g} in {moment.span} steps" if isfinite(change) else ""


def _evaluation(moment: Moment) -> tuple[str, str]:
    found = moment.evaluations("loss")
    if not found:
        return "—", ""
    best = min(found, key=lambda each: each[1])
    return _figure(found[-1][1]), f"best {number(best[1])} at {best[0]}"


def _busy(moment: Moment) -> str:
    used = [] if moment.mfu is None else [f"{moment.mfu:.0%} MFU"]
    busy = [] if moment.busy is None else [f"GPUs {moment.busy:.0%} busy"]
    return " · ".join([*used, *busy])


def _figure(value: float | None, form: str = "") -> str:
    if value is None:
        return "—"
    if not isfinite(value):
        return "not finite"
    return form.format(value) if form else number(value)


def _notes(moment: Moment) -> str:
    summary = moment.summary
    found = []
    if summary.status is Status.COMPLETED:
        found.append(("", _result(moment)))
    if summary.failure:
        found.append(("bad", summary.failure.headline))
    # What the line of status and the samples show already is not said twice, and an answer is no warning.
    found += [("warn", remark) for remark in summary.remarks if not remark.startswith(("no news", "sample, "))]
    lines = "".join(f'<div class="veri-note {tone}">{escape(readable(text))}</div>' for tone, text in found)
    tail = f"<pre>{escape(chr(10).join(summary.log_tail))}</pre>" if summary.log_tail else ""
    return lines + tail


def _result(moment: Moment) -> str:
    summary, planned = moment.summary, moment.planned.peak_bytes
    label, path = summary.place
    loss = [f"{name} {value}" for name, value in summary.figures if name == "loss"]
    peak = max(summary.peak_memory_bytes, default=0)
    beside = f", planned {size(planned)} ({peak / planned - 1:+.0%})" if planned else ""
    return " · ".join([*loss, *([f"peak {size(peak)}{beside}"] if peak else []), f"{label} {path}"])


def _ended(moment: Moment) -> str:
    summary = moment.summary
    took = duration(summary.elapsed_seconds)
    step = f"step {summary.step} of {summary.total_steps}" if summary.total_steps else f"step {summary.step}"
    match summary.status:
        case Status.COMPLETED:
            return f"Done in {took} · {summary.step} steps"
        case Status.CANCELLED:
            return f"Stopped at {step} · after {took}"
    return f"Failed at {step} · after {took}"


def _epoch(moment: Moment) -> list[str]:
    epochs = moment.epochs
    return [f"epoch {epochs[0]:.1f} of {epochs[1]:.3g}"] if epochs and epochs[1] > 1.05 else []


def _finish(moment: Moment) -> list[str]:
    """The clock time of the end, where it is more than a few minutes away."""
    left, now = moment.summary.seconds_left, moment.summary.as_of
    if left is None or left < 300 or not moment.summary.step:
        return []
    end = now + timedelta(seconds=left)
    return [f"until {end:%H:%M}" if end.date() == now.date() else f"until {end:%a %H:%M}"]


def _seen(quiet: float) -> str:
    late = " late" if quiet > QUIET_SECONDS else ""
    return f'<span class="veri-seen{late}"><span class="veri-optional">seen </span>{duration(quiet)} ago</span>'


def _veil(moment: Moment) -> str:
    at: datetime = moment.summary.as_of
    return (
        f'<div class="veri-veil"><div>This view stands still since {at:%H:%M:%S}. Go on: '
        f"<code>{escape(moment.summary.attach)}</code></div></div>"
    )
