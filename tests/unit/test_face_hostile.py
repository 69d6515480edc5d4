"""Hostile text stays text: names, paths, log lines, answers, errors and settings of a job, in every view of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.protocol.files import write_json
from kernel_launcher.protocol.fold import JobView
from kernel_launcher.protocol.index import Entry
from kernel_launcher.protocol.summary import Summary
from tests.unit.test_face_static import Page
from tests.unit.test_summary import NOW, event, status
from tests.unit.views import step
from veri_jupyter.monitor import static, trouble
from veri_jupyter.monitor.compare import Comparison
from veri_jupyter.monitor.dashboard import Dashboard
from veri_jupyter.monitor.figures import mime, paper
from veri_jupyter.monitor.moment import Moment, Planned
from veri_jupyter.monitor.sample_table import SampleTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOSTILE = (
    '<script>alert("1")</script>',
    '<img src=x onerror="alert(1)">',
    "\" onmouseover='alert(1)' '",
    "</pre></code></summary></details></style><b>",
    "<a href='javascript:alert(1)'>a link, also in plotly</a><br>",
    "&lt;b&gt;&amp;",
)


def job(folder: Path, text: str, *, ended: bool) -> Moment:
    """A job all of whose texts are this one, after a step or after a failure."""
    entry = Entry(
        id=text, name=text, root=str(folder / text), created_at="2025-01-01T10:10:10.000Z", fingerprint=text
    )
    entry.run.create()
    entry.run.rank(0).root.mkdir(parents=True)
    entry.run.rank(0).stdout.write_text(f"{text}\n")
    method = {"type": "sft_text", "optim": text, text: "set"}
    peak = {"total_bytes": 10**9, "band_bytes": 1, "limit_bytes": 2 * 10**9, "phase": text}
    write_json(entry.run.plan, {"method": method, "resources": {"gpu_count": 1, "gpu_type": text}, "peak": peak})
    write_json(entry.run.spec, {"spec": {"model": {"base": text}, "dataset": {"id": text}}})
    answers = [{"prompt": text, "text": f"{text} {number}", "finished": True} for number in (1, 2)]
    events = [
        status("running"),
        event("plan", line=text, resolved_parallelism={"data_parallel_size": text}, warnings=[text]),
        event("warning", rank=0, message=text),
        *(event("samples", rank=0, step=at, samples=[said]) for at, said in enumerate(answers)),
        event("heartbeat", rank=0, step=1, phase=text, memory_bytes=10**9, peak_memory_bytes=10**9),
        step(1),
        event("eval", rank=0, step=1, metrics={"eval_loss": 1.0, text: 1.0}),
    ]
    if ended:
        failure = {"code": text, "message": text, "attribution": text, "log_tail": [text], "rank": 0}
        events += [event("failure", **failure), status("failed")]
    else:
        events.append(event("download", rank=0, file=text, done_bytes=1, total_bytes=2))
    view = JobView(created_at=entry.created_at).apply_all(events)
    planned = Planned.of(entry)
    assert text == planned.phase
    return Moment(entry=entry, view=view, summary=Summary.of(entry, view, NOW), planned=planned)


def dashboard(moment: Moment) -> Iterator[str]:
    board = Dashboard(moment.entry, lambda _: None)
    board.draw(moment.entry, moment.view)
    for tab in range(len(board._panes)):
        board._shown = None
        board._tabs.selected_index = tab
        board.draw(moment.entry, moment.view)
    yield from htmls(board.widget)
    board.close()


def htmls(widget: Any) -> Iterator[str]:
    for child in getattr(widget, "children", ()):
        yield from htmls(child)
    if type(widget).__name__ == "HTML" and not widget.value.startswith("<style>"):
        yield widget.value


def compared(moment: Moment) -> Iterator[str]:
    yield Comparison([moment, moment])._repr_html_()
    yield static.grid(("", moment.entry.name), [(moment.entry.name, moment.entry.name)])


VIEWS: dict[str, Callable[[Moment], Iterator[str] | list[str]]] = {
    "dashboard": dashboard,
    "its foot": lambda moment: [static.foot(moment)["text/html"]],
    "static mode": lambda moment: [static.bundle(moment)["text/html"], static.chart(moment)["text/html"]],
    "list of jobs": lambda moment: [static.table([moment.summary])],
    "comparison": compared,
    "answers": lambda moment: [SampleTable(moment.view.samples)._repr_html_()],
    "trouble": lambda moment: [trouble.html(moment.entry, RuntimeError(moment.entry.name))],
}


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("view", VIEWS)
def test_no_text_of_a_job_brings_markup(view: str, ended: bool, tmp_path: Path) -> None:
    """The page has the elements and attributes that it has with harmless words, and says what was said."""

    def pages(text: str) -> list[Page]:
        return [Page(html) for html in VIEWS[view](job(tmp_path, text, ended=ended))]

    def elements(found: list[Page]) -> set[tuple[str, str]]:
        return {(tag, name) for page in found for tag, attributes in page.tags for name in ("", *attributes)}

    harmless = elements(pages("some harmless words"))
    for text in HOSTILE:
        found = pages(text)
        assert elements(found) <= harmless
        assert any(text in page.text for page in found), text


def as_plotly_reads(text: str) -> str:
    """Entities as text; plotly.js knows these names alone (``convertEntities``)."""
    for name, meant in (("lt", "<"), ("gt", ">"), ("amp", "&")):
        text = text.replace(f"&{name};", meant)
    return text


def texts(value: Any) -> Iterator[str]:
    """Every string of a figure."""
    if isinstance(value, str):
        yield value
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for part in parts:
        yield from texts(part)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_name_becomes_a_link_in_a_figure(text: str, tmp_path: Path) -> None:
    """plotly reads tags and entities in legends, titles and at the pointer: what it is given has none but ours."""
    moment = job(tmp_path, text, ended=True)
    other = replace(moment, entry=replace(moment.entry, name=f"{text} again"))
    both = Comparison([moment, other]).figure()
    assert [text, f"{text} again"] == [as_plotly_reads(trace.name) for trace in both.data if trace.showlegend]
    for figure in (both.to_plotly_json(), paper(moment, 50).to_plotly_json(), mime(moment)):
        data = figure.get("application/vnd.plotly.v1+json", figure)
        assert [] == [said for said in texts({"data": data["data"], "layout": data["layout"]}) if "<" in said]
