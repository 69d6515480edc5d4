"""The plan explorer as a person meets it: in JupyterLab, in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from kernel_launcher.launcher import client
from tests.unit.trace_toys import EXPERTS, folder

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, FloatRect, Locator

    from tests.browser.lab import Notebook, Server
    from tests.conftest import Sample

LOAD = "%load_ext veri_jupyter\ndf = [{'prompt': 'a', 'completion': 'b'}] * 1204"
FOUR_L4 = "%veri_explore Qwen/Qwen3-8B --data df --gpu-type L4-24GB --gpus 4 --set global_batch_size=64"
TINY = """[model]
base = "{sample.tiny}"
[dataset]
id = "{sample.sft}"
[method]
lora_rank = 4
max_steps = 100_000
max_seq_length = 64
[resources]
gpu_type = "CPU"
gpu_count = 1
"""
CHANGES = 30
LINES, LINE = 4, 20  # two of text with what is around them, in pixels


def explorer(page: Notebook, index: int = 1) -> Locator:
    """The explorer below a cell."""
    found = page.output(index).locator(".vx")
    found.locator(".vx-badge").wait_for(timeout=60_000)
    return found


def put(found: Locator, label: str, value: str) -> None:
    control = found.get_by_label(label, exact=True)
    control.fill(value)
    control.press("Enter")


def place(found: Locator) -> FloatRect:
    box = found.bounding_box()
    assert box is not None
    return box


def says(found: Locator, part: str, text: str) -> None:
    found.locator(part).get_by_text(text).first.wait_for()


@pytest.mark.torch
def test_from_the_first_knob_to_the_launch(server: Server, browser: Browser, sample: Sample, pictures: Path) -> None:
    """Four knobs move verdict and bar, a lever is one click, the text is copied, another one pasted and launched."""
    with server.notebook(browser, LOAD, FOUR_L4, height=2600) as page:
        page.run_cell(0)
        page.run_cell(1)
        found = explorer(page)
        says(found, ".vx-top", "TIGHT")
        says(found, ".vx-top", "1,204 rows")
        bar = found.get_by_role("img", name="weights")
        before = bar.get_attribute("aria-label")

        put(found, "micro_batch_size", "x")
        says(found, ".vx-form", "✗ must be a whole number")
        put(found, "micro_batch_size", "2")
        put(found, "max_seq_length", "512")
        found.get_by_label("gpu_type", exact=True).select_option("A100-80GB")
        found.get_by_role("button", name="LoRA", exact=True).click()
        says(found, ".vx-top", "4 x A100-80GB")
        says(found, ".vx-top", "✓ FITS")
        page.page.wait_for_function(
            "before => document.querySelector('.vx-bar [role=img]').ariaLabel !== before", arg=before
        )

        lever = found.locator(".vx-next button").first
        told = lever.inner_text()
        lever.click()
        found.get_by_role("button", name="Undo").and_(page.page.locator(":enabled")).wait_for()
        assert told.startswith("-")

        found.get_by_role("button", name="All 30 ways").click()
        listed = found.locator(".vx-all select")
        listed.locator("option").first.wait_for(state="attached")
        page.screenshot("explorer-all", 1, pictures)
        listed.select_option(index=3)
        micro = listed.locator("option").nth(3).inner_text().split()[1]
        says(found, ".vx-top", f"= 4 ranks x {micro} x ")
        found.get_by_role("button", name="All 30 ways").click()

        found.get_by_text("Copy or paste").click()
        text = found.locator("textarea")
        found.get_by_role("button", name="TOML", exact=True).click()
        page.page.wait_for_function("() => document.querySelector('.vx textarea').value.startsWith('# rows')")
        assert 'gpu_type = "A100-80GB"' in text.input_value()
        page.screenshot("explorer", 1, pictures)

        text.fill(TINY.format(sample=sample))
        says(found, ".vx-more", "Read; the form shows it.")
        assert "64" == found.get_by_label("max_seq_length", exact=True).input_value()
        found.get_by_role("button", name="What it learns").press("Enter")
        found.locator(".vx-learns u.run").first.wait_for(timeout=30_000)
        page.screenshot("explorer-learns", 1, pictures)
        for length, finding in (("32", "nothing_trained"), ("64", "answers_cut")):
            put(found, "max_seq_length", length)
            found.locator(".vx-learns").get_by_text(finding).wait_for(timeout=30_000)
        found.get_by_role("button", name="Launch").click()
        board = found.locator(".veri")
        board.locator(".js-plotly-plot .scatterlayer").first.wait_for(timeout=60_000)
        page.screenshot("explorer-launched", 1, pictures)
        board.get_by_role("button", name="Stop").click()
        board.get_by_role("button", name="Really stop?").click()
        board.get_by_text("cancelled").first.wait_for(timeout=60_000)
    assert "cancelled" == client.Watcher(client.find("tiny")).refresh().status


@pytest.mark.matrix
def test_verdict_and_launch_stay_in_sight(server: Server, browser: Browser, pictures: Path, tmp_path: Path) -> None:
    """On 700 pixels: in two lines, below which the rest scrolls; also where only a measurement could say."""
    base = folder(tmp_path / "experts", EXPERTS)
    with server.notebook(browser, LOAD, FOUR_L4, f"%veri_explore {base} --gpu-type L4-24GB --gpus 4") as page:
        page.width(700)
        page.run_cell(0)
        page.run_cell(1)
        found = explorer(page)
        says(found, ".vx-top", "1,204 rows")
        top, launch = found.locator(".vx-top"), found.get_by_role("button", name="Launch")
        at = place(top)
        assert at["height"] < LINES * LINE
        found.locator(".vx-form").hover()
        before = place(found.locator(".vx-bar"))
        page.page.mouse.wheel(0, at["y"] + 400)
        page.page.wait_for_timeout(300)
        assert before["y"] - place(found.locator(".vx-bar"))["y"] > at["y"] - place(top)["y"]
        for part in (found.locator(".vx-badge"), launch):
            expect(part).to_be_in_viewport(ratio=1)
        held, button = place(top), place(launch)
        assert held["y"] <= button["y"] <= held["y"] + held["height"] - button["height"]
        page.page.screenshot(path=pictures / "explorer-scrolled-700.png")
        page.run_cell(2)
        explorer(page, 2).get_by_role("button", name="Trace, 30 s, no GPU").wait_for()
        page.screenshot("explorer-cannot-say", 2, pictures)


@pytest.mark.matrix
def test_while_another_cell_is_busy(server: Server, browser: Browser) -> None:
    """The form answers while the kernel computes something else; running its cell again leaves one explorer."""
    with server.notebook(browser, LOAD, FOUR_L4) as page:
        for cell in (0, 1, 1):
            page.run_cell(cell)
        found = explorer(page)
        assert 1 == page.output(1).locator(".vx").count()
        index = page.run("import time; time.sleep(20); print('free')", wait=False)
        page.page.wait_for_timeout(1000)
        put(found, "gpu_count", "8")
        says(found, ".vx-top", "8 x L4-24GB")
        assert "free" not in page.output(index).inner_text()


@pytest.mark.matrix
def test_how_soon_a_change_is_seen(server: Server, browser: Browser) -> None:
    """From a new length to the new bar on the page; the time is printed, what is sent is bounded."""
    with server.notebook(browser, LOAD, FOUR_L4) as page:
        page.run_cell(0)
        page.run_cell(1)
        length = explorer(page).get_by_label("max_seq_length", exact=True)
        took, sent = [], len(page.received)
        for turn in range(CHANGES):
            took.append(
                length.evaluate(
                    """(control, length) => new Promise(done => {
                        const start = performance.now();
                        const seen = new MutationObserver(() => {
                            seen.disconnect();
                            done(performance.now() - start);
                        });
                        seen.observe(document.querySelector('.vx-bar'), {childList: true, subtree: true});
                        control.value = length;
                        control.dispatchEvent(new Event('change', {bubbles: true}));
                    })""",
                    str(1100 + 64 * turn),  # never the same again: what was planned once is quicker
                )
            )
            page.page.wait_for_timeout(150)
        took.sort()
        a_change = sum(size for _, size in page.received[sent:]) / CHANGES
        print(f"change to redraw: median {took[CHANGES // 2]:.0f} ms, 95th {took[-2]:.0f} ms; {a_change:,.0f} bytes")
        assert a_change < 40_000  # with the envelopes of messages and what JupyterLab asks meanwhile
