"""A data view in a real browser: hostile rows run nothing and add nothing, and the marks can be seen."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_launcher.data.show.visible import visible
from tests.unit.test_view_shown import HOSTILE, everywhere
from tests.unit.view_toys import a_finding, a_row, a_view, token
from veri_jupyter.data import html

THEMES = {
    "light": ("true", "#fff", "rgba(0, 0, 0, .87)", "rgba(0, 0, 0, .54)"),
    "dark": ("false", "#111", "#fff", "rgba(255, 255, 255, .7)"),
}


def opened(browser: Any, body: str, theme: str = "light", width: int = 1100) -> Any:
    """A page like JupyterLab's around it."""
    is_light, paper, ink, quiet = THEMES[theme]
    page = browser.new_page(viewport={"width": width, "height": 1000})
    style = f"background: {paper}; --jp-ui-font-color1: {ink}; --jp-ui-font-color2: {quiet}"
    page.set_content(f'<!doctype html><body data-jp-theme-light="{is_light}" style="{style}">{body}')
    return page


def test_hostile_rows_do_nothing_in_a_page(browser: Any) -> None:
    """No script runs, nothing is fetched, no element is added, and what is read is what the row says."""
    view = everywhere(" ".join(HOSTILE))
    page = browser.new_page()
    happened: list[str] = []
    page.on("dialog", lambda dialog: (happened.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: happened.append(request.url))
    page.set_content(f"<!doctype html><body>{html.page(view)}")
    page.hover(".tokens span")
    for summary in page.query_selector_all("summary"):
        summary.click()
    assert [] == happened
    foreign = ".veri-data script, .veri-data img, .veri-data iframe, body > :not(.veri-data):not(style)"
    assert 0 == len(page.query_selector_all(foreign))
    said = visible(" ".join(HOSTILE))
    assert said == page.inner_text(".row pre")
    titles = page.eval_on_selector_all("[title]", "all => all.map(one => one.title)")
    assert all(title.split(" ")[0].isdigit() for title in titles)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [700, 1100])
def test_the_marks_are_seen_and_nothing_sticks_out(browser: Any, theme: str, width: int) -> None:
    """Trained text is underlined, cut text struck, control tokens boxed; long words break."""
    tokens = (
        token("Q" * 500, "user"),
        token("A", "assistant", trained=True),
        token("<e>", special=True, trained=True),
        token("B", "assistant", trained=True, cut=True),
    )
    page = opened(browser, html.page(a_view(a_row(tokens, prompt="x" * 500))), theme, width)
    looks = "all => all.map(one => getComputedStyle(one).textDecorationLine)"
    assert ["underline"] == page.eval_on_selector_all(".row u", looks)
    assert ["line-through"] == page.eval_on_selector_all(".row s", looks)
    assert "solid" == page.eval_on_selector(".row kbd", "one => getComputedStyle(one).borderTopStyle")
    for summary in page.query_selector_all("summary"):
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


CONTRAST = """one => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const paper = parts(getComputedStyle(document.body).backgroundColor);
  const [r, g, b, a = 1] = parts(getComputedStyle(one).color);
  const ink = [r, g, b].map((v, i) => a * v + (1 - a) * paper[i]);
  const [high, low] = [light(ink), light(paper)].sort((x, y) => y - x);
  return (high + .05) / (low + .05) }"""


@pytest.mark.parametrize("theme", THEMES)
def test_grey_can_be_read(browser: Any, theme: str) -> None:
    """Context, trained text and badges stand out from the page by 4.5 to 1."""
    view = a_view(findings=(a_finding(), a_finding(severity="warning")))
    page = opened(browser, html.page(view), theme)
    for selector in (".row .tokens span.run", ".row u.run", ".row .turn > b", ".badge.error", ".badge.warning"):
        assert page.eval_on_selector(selector, CONTRAST) > 4.5, selector
