"""The live dashboard as a person meets it: in JupyterLab, in a browser."""

from __future__ import annotations

import json
import time
from statistics import median
from typing import TYPE_CHECKING

import pytest

from kernel_launcher.launcher import client
from kernel_launcher.protocol import control
from tests.browser import runs
from tests.notebooks.test_quickstart import shortened

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator

    from tests.browser.lab import Notebook, Server
    from tests.conftest import Sample

LOAD = "%load_ext veri_jupyter"
TRAIN = """%%veri_train --gpus 1 --gpu-type CPU --name seen
[model]
base = "{sample.tiny}"
[dataset]
id = "{sample.sft}"
[method]
lora_rank = 4
max_steps = 100_000
max_seq_length = 64
"""
BYTES_A_MINUTE = 1_000_000
# No slash: it is a folder's name, too.
HOSTILE = '<a href="javascript:window.pwned = 1"><img src=x onerror="window.pwned = 1"><script>window.pwned = 1'


def board(page: Notebook, index: int = 1) -> Locator:
    """The dashboard below a cell, drawn with its chart."""
    found = page.output(index).locator(".veri")
    # Hidden while there is no step.
    found.locator(".js-plotly-plot .main-svg").first.wait_for(state="attached")
    return found


def says(found: Locator, text: str, timeout: float = 30) -> None:
    found.get_by_text(text).first.wait_for(timeout=1000 * timeout)


def points(found: Locator) -> int:
    """How many points the first line of the chart has."""
    return int(found.locator(".js-plotly-plot").first.evaluate("plot => plot.data[0].y?.length ?? 0"))


def grows(found: Locator, beyond: int, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while points(found) <= beyond:
        assert time.monotonic() < deadline
        found.page.wait_for_timeout(200)


def stop(found: Locator) -> None:
    found.get_by_role("button", name="Stop").click()
    found.get_by_role("button", name="Really stop?").click()


@pytest.mark.torch
def test_from_the_cell_to_the_stop(server: Server, browser: Browser, sample: Sample, pictures: Path) -> None:
    """Launch from a cell, watch the curve grow while other cells run, stop with the button."""
    with server.notebook(browser, LOAD, TRAIN.format(sample=sample)) as page:
        page.run_cell(0)
        page.run_cell(1)
        found = board(page)
        says(found, "running", 120)
        grows(found, 0, 60)
        seen = points(found)
        other = page.run("print(6 * 7)")
        says(page.output(other), "42")
        grows(found, seen)
        stop(found)
        says(found, "cancelled", 60)
        assert found.get_by_role("button", name="Stop").is_disabled()
        page.screenshot("stopped", 1, pictures)
    assert "cancelled" == client.Watcher(client.find("seen")).refresh().status


def test_a_reload_a_save_and_a_restart(server: Server, browser: Browser, tmp_path: Path, pictures: Path) -> None:
    """After a reload it goes on, with answers; what is saved has its time; after a restart it says how to attach."""
    job = runs.job(tmp_path, "kept")
    with server.notebook(browser, LOAD, "%veri_attach kept") as page:
        page.run_cell(0)
        page.run_cell(1)
        says(board(page), "Step 57 of 114")
        page.screenshot("running", 1, pictures)
        page.saved()

        page.reload()
        assert 57 == points(board(page))
        runs.advance(job, 58, 60)
        says(board(page), "Step 60 of 114")
        grows(board(page), 59)

        runs.answered(job, 0, "It is red.")
        runs.answered(job, 60, "It is blue.")
        answers = board(page).get_by_role("region", name="samples")
        says(answers, "It is red.")
        assert "blue" == answers.locator("mark").inner_text()
        page.screenshot("samples", 1, pictures)

        saved = page.saved()
        size = (server.root / page.path).stat().st_size
        assert size < 100_000
        assert "widgets" not in saved.metadata
        foot = saved.cells[1].outputs[-1].data
        for kind in ("text/plain", "text/html"):
            assert "as of " in foot[kind]
            assert f"%veri_attach {job.entry.id}" in foot[kind]

        page.restart_kernel()
        says(page.output(1), f"%veri_attach {job.entry.id}")
        page.output(1).get_by_text("This view stands still since").or_(
            page.output(1).get_by_text("model not found")
        ).first.wait_for(timeout=40_000)
        page.output(1).screenshot(path=pictures / "after-restart.png")
        page.run(LOAD)
        again = page.run("%veri_attach kept")
        says(board(page, again), "Step 60 of 114")
    job.status("cancelled")


@pytest.mark.matrix
def test_a_kernel_that_dies_leaves_a_view_that_looks_so(
    server: Server, browser: Browser, tmp_path: Path, pictures: Path
) -> None:
    """A view that nothing keeps current is veiled, and says since when and how to go on."""
    job = runs.job(tmp_path, "frozen")
    with server.notebook(browser, LOAD, "%veri_attach frozen") as page:
        page.run_cell(0)
        page.run_cell(1)
        says(board(page), "Step 57")
        veil = page.output(1).locator(".veri-veil")
        assert not veil.is_visible()
        page.run("%unload_ext veri_jupyter")
        veil.wait_for(timeout=40_000)
        assert "This view stands still since" in veil.inner_text()
        page.screenshot("frozen", 1, pictures, until=veil)  # another theme lays the page out anew: 15 seconds again
    job.status("cancelled")


@pytest.mark.matrix
def test_a_click_while_a_cell_is_busy(server: Server, browser: Browser, tmp_path: Path, pictures: Path) -> None:
    """The stop button works while another cell computes."""
    job = runs.job(tmp_path, "busy")
    with server.notebook(browser, LOAD, "%veri_attach busy") as page:
        page.run_cell(0)
        page.run_cell(1)
        found = board(page)
        index = page.run("import time; time.sleep(20); print('free')", wait=False)
        page.page.wait_for_timeout(1000)
        with job.answering():
            stop(found)
            says(found, "cancelled", 15)
        assert "free" not in page.output(index).inner_text()
        page.screenshot("busy", 1, pictures)
    assert [] != control.pending(job.entry.run)


@pytest.mark.matrix
def test_the_static_mode(server: Server, browser: Browser, tmp_path: Path, pictures: Path) -> None:
    """A summary and a picture without widgets while it runs, plotly's figure at the end."""
    job = runs.job(tmp_path, "still")
    with server.notebook(browser, LOAD, "%veri_attach still --display static") as page:
        page.run_cell(0)
        page.run_cell(1)
        says(page.output(1), "Step 57 of 114")
        page.output(1).get_by_role("img", name="loss: ").wait_for()
        assert 0 == page.output(1).locator(".jupyter-widgets").count()
        page.screenshot("static", 1, pictures)
        runs.advance(job, 58, 114)
        job.status("completed")
        page.output(1).locator(".js-plotly-plot .scatterlayer").first.wait_for()
        says(page.output(1), "Done in")
        page.screenshot("static-end", 1, pictures)
        assert (server.root / page.path).stat().st_size < 100_000


@pytest.mark.matrix
def test_what_a_minute_costs(server: Server, browser: Browser, tmp_path: Path) -> None:
    """After its first picture the dashboard of a long job stays under a megabyte a minute."""
    job = runs.job(tmp_path, "long", 0)
    runs.advance(job, 1, 5_000, total=10_000)
    with server.notebook(browser, LOAD, "%veri_attach long") as page:
        page.run_cell(0)
        page.run_cell(1)
        board(page)
        page.page.wait_for_timeout(3000)
        plot = board(page).locator(".js-plotly-plot").first
        plot.evaluate(
            """plot => { window.drawn = []; plot.on('plotly_afterplot', () => {
                drawn.push([plot.data[0].y.at(-1), Date.now()]); }); }"""
        )
        begun, before, written = time.monotonic(), sum(size for _, size in page.received), []
        for step in range(5_001, 5_021):
            runs.advance(job, step, step, total=10_000)
            job.report("heartbeat", 0, step=step, memory_bytes=step * 10**6, peak_memory_bytes=step * 10**6)
            written.append(page.page.evaluate("Date.now()"))
            page.page.wait_for_timeout(1170)  # at another part of the dashboard's second each time
        sent = sum(size for _, size in page.received) - before
        a_minute = sent / (time.monotonic() - begun) * 60
        drawn = page.page.evaluate("drawn")
        took = [
            next(at - start for last, at in drawn if last == pytest.approx(loss, rel=1e-6)) / 1000
            for start, loss in zip(written, job.look().series["loss"][5_000:], strict=True)
        ]
        print(f"{a_minute:,.0f} bytes a minute; from event to point {median(took):.2f} s, at most {max(took):.2f}")
        assert 0 < a_minute < BYTES_A_MINUTE
    job.status("cancelled")


@pytest.mark.matrix
def test_a_hidden_tab_catches_up(server: Server, browser: Browser, tmp_path: Path) -> None:
    """A page that was behind another one shows the newest step, and no veil."""
    job = runs.job(tmp_path, "hidden")
    with server.notebook(browser, LOAD, "%veri_attach hidden") as page:
        page.run_cell(0)
        page.run_cell(1)
        found = board(page)
        front = page.page.context.new_page()
        front.goto("about:blank")
        front.bring_to_front()
        for step in range(58, 78):
            runs.advance(job, step, step)
            front.wait_for_timeout(900)
        page.page.bring_to_front()
        says(found, "Step 77 of 114", 5)
        assert 77 == points(found)
        assert not page.output(1).locator(".veri-veil").is_visible()
    job.status("cancelled")


@pytest.mark.matrix
def test_two_views_of_one_job_and_a_cell_that_runs_again(server: Server, browser: Browser, tmp_path: Path) -> None:
    """Each cell has its own view, or two; running a cell again closes what it showed."""
    job = runs.job(tmp_path, "twice")
    both = "import veri_jupyter\njob = veri_jupyter.attach('twice')\njob.dashboard()\njob.dashboard()"
    with server.notebook(browser, LOAD, "%veri_attach twice", both) as page:
        for cell in (0, 1, 2, 1):
            page.run_cell(cell)
        first, both = board(page, 1), board(page, 2)
        assert 2 == both.count()
        second = both.last
        runs.advance(job, 58, 60)
        for found in (first, second):
            says(found, "Step 60 of 114")
            grows(found, 59)
        count = page.run(
            "import ipywidgets; print('figures:', sum(type(each).__name__ == '_Figure'"
            " for each in ipywidgets.widgets.widget._instances.values()))"
        )
        says(page.output(count), "figures: 3")
        job.status("completed")
        for found in (first, second):
            says(found, "Done in")


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["preference", "young", "ended", "failed", "many"])
def test_other_jobs(name: str, server: Server, browser: Browser, tmp_path: Path, pictures: Path) -> None:
    """A preference job, one without a step, those that ended while nobody watched, one of twelve ranks."""
    options = {"preference": {"method": "dpo"}, "young": {"steps": 0}, "many": {"ranks": 12}}
    job = runs.job(tmp_path, name, **options.get(name, {}))  # type: ignore[arg-type]
    if name == "ended":
        runs.advance(job, 58, 114)
        job.status("completed")
    if name == "failed":
        message = (
            "rank 2/4 (node 0, local_rank 2) failed: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.1 GiB"
        )
        job.fail(
            code="oom", message=message, attribution="customer", log_tail=["Traceback", "OutOfMemoryError"], rank=2
        )
    expected = {"preference": "accuracy", "young": "Starting", "ended": "Done in", "failed": "oom: yours to fix",
                "many": "median"}[name]  # fmt: skip
    with server.notebook(browser, LOAD, f"%veri_attach {name}") as page:
        page.run_cell(0)
        page.run_cell(1)
        says(board(page), expected)
        page.screenshot(name, 1, pictures)
    if name not in ("ended", "failed"):
        job.status("cancelled")


@pytest.mark.matrix
def test_hostile_text_stays_text(server: Server, browser: Browser, tmp_path: Path) -> None:
    """A job's name, folder, warning, log, answers, error and settings: in every view there is of it."""
    for number in (1, 2):
        job = runs.job(tmp_path / f"{HOSTILE} {number}", f"{HOSTILE} {number}")
        job.report("warning", message=HOSTILE)
        runs.answered(job, 0, HOSTILE)
        runs.answered(job, number, HOSTILE)
        job.entry.run.rank(0).stdout.write_text(f"{HOSTILE}\n")
        job.fail(code=HOSTILE, message=HOSTILE, attribution="customer", log_tail=[HOSTILE], rank=0)
    find = f"{LOAD}\nimport veri_jupyter\nfrom IPython.display import HTML\none, other = veri_jupyter.jobs()[:2]"
    views = ["one.dashboard()", "one.dashboard('static')", "%veri_jobs", "veri_jupyter.compare(one, other)",
             "one.figure()", "HTML(one._repr_html_())", "one.samples"]  # fmt: skip
    with server.notebook(browser, find, *views, height=4000) as page:
        for cell in range(len(views) + 1):
            page.run_cell(cell)
        found = board(page)
        for tab in ("Samples", "Speed", "Log", "Plan"):
            found.get_by_role("tab", name=tab).click()
        found.get_by_role("tab", name="Log").click()
        says(found.get_by_role("region", name="log"), HOSTILE)
        page.output(1).locator("details summary").click()
        page.output(4).locator(".js-plotly-plot .legendtext").first.hover(force=True)
        page.output(5).locator(".js-plotly-plot .main-svg").first.wait_for()
        page.page.wait_for_timeout(1000)
        for cell in (1, 2, 3, 4, 6, 7):
            assert HOSTILE in page.output(cell).inner_text(), views[cell - 1]
        assert HOSTILE in page.output(4).locator(".js-plotly-plot .legendtext").first.text_content()
        everywhere = page.page.locator(".jp-Cell-outputArea")
        for made in ("img[src=x]", "script", "svg a", "[href^=javascript]"):
            assert 0 == everywhere.locator(made).count(), made
        assert page.page.evaluate("window.pwned") is None


@pytest.mark.matrix
@pytest.mark.torch
def test_the_quickstart_stays_small(server: Server, browser: Browser, sample: Sample) -> None:
    """After Run All with a live dashboard, saved: no widget's script, and the end of the job."""
    cells = [cell.source for cell in shortened(server.root, sample).cells if cell.cell_type == "code"]
    with server.notebook(browser, *cells) as page:
        for index in range(len(cells)):
            page.run_cell(index)
        saved = page.saved()
        assert (server.root / page.path).stat().st_size < 300_000
    assert "widgets" not in saved.metadata
    assert [] == [output for cell in saved.cells for output in cell.outputs if output.output_type == "error"]
    foot = saved.cells[3].outputs[-1].data["text/plain"]
    assert foot.startswith("✓ completed quickstart: Done in ")


@pytest.mark.matrix
def test_the_keyboard_is_enough(server: Server, browser: Browser, tmp_path: Path) -> None:
    """Tabs are reached and changed with keys, and so is the button; every part has a name to be heard."""
    job = runs.job(tmp_path, "keys")
    with server.notebook(browser, LOAD, "%veri_attach keys") as page:
        page.run_cell(0)
        page.run_cell(1)
        found = board(page)
        found.get_by_role("tab", name="Speed").focus()
        page.page.keyboard.press("ArrowRight")
        page.page.keyboard.press("Enter")
        found.get_by_role("region", name="log").wait_for()
        button = found.get_by_role("button", name="Stop")
        button.focus()
        page.page.keyboard.press("Enter")
        found.get_by_role("button", name="Really stop?").wait_for()
        heard = json.dumps(page.page.accessibility.snapshot() if hasattr(page.page, "accessibility") else {})
        assert "Job keys" in (heard if heard != "{}" else found.inner_html())
    job.status("cancelled")


@pytest.mark.matrix
def test_jobs_side_by_side(server: Server, browser: Browser, tmp_path: Path, pictures: Path) -> None:
    """compare() draws the losses on one chart, and a table of what differs."""
    made = [runs.job(tmp_path, "one", 40), runs.job(tmp_path, "other", 57, method="dpo")]
    with server.notebook(browser, "import veri_jupyter\nveri_jupyter.compare('one', 'other')") as page:
        page.run_cell(0)
        page.output(0).locator(".js-plotly-plot .scatterlayer").first.wait_for()
        assert "method" in page.output(0).get_by_role("table").inner_text()
        page.screenshot("compare", 0, pictures)
    for job in made:
        job.status("cancelled")
