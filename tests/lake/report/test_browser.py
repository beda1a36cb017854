"""Page of a report in a real browser: offline, safe, readable in every colour scheme and width, usable by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.pages.reports import empty_report, report
from support.servers.browser import CONTRAST, chromium, open_page

from pdp.lake.report.html import render

pytestmark = pytest.mark.process
HOSTILE = "<script>alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(2)>\u202egnp.exe"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render(report()))
    return file


@pytest.fixture(scope="module")
def hostile_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("hostile") / "report.html"
    file.write_text(render(report(f"user:oidc~{HOSTILE}", f"table:lake/s/{HOSTILE}", HOSTILE)))
    return file


def test_the_page_asks_for_nothing_and_says_nothing(browser: Any, page_file: Path) -> None:
    page, noise = open_page(browser, page_file)
    page.wait_for_timeout(200)
    assert noise == []
    assert page.evaluate("getComputedStyle(document.body).fontSize") == "16px"  # the style counts under its policy


def test_hostile_names_are_texts(browser: Any, hostile_file: Path) -> None:
    page, noise = open_page(browser, hostile_file)
    page.wait_for_timeout(200)
    assert noise == []
    assert page.locator("script, img").count() == 0
    text = page.locator("body").inner_text()
    assert "<script>alert(1)</script>" in text
    assert "\u202e" not in text
    assert "\\u202e" in text


def test_no_script_runs_in_the_page(browser: Any, page_file: Path, tmp_path: Path) -> None:
    """The policy in the page holds, even if somebody brings a script into the file."""
    file = tmp_path / "report.html"
    file.write_text(page_file.read_text().replace("</main>", "<script>document.title='hit'</script></main>"))
    page, noise = open_page(browser, file)
    assert page.title() != "hit"
    assert any("Content Security Policy" in line for line in noise)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(browser: Any, page_file: Path, scheme: str) -> None:
    page, _ = open_page(browser, page_file, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate(CONTRAST) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 384) == (scheme == "dark")


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 1920])
def test_every_width_shows_the_whole_page(browser: Any, page_file: Path, hostile_file: Path, width: int) -> None:
    for file in (page_file, hostile_file):
        page, _ = open_page(browser, file, viewport={"width": width, "height": 800})
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_screen_reader_finds_its_way(browser: Any, page_file: Path) -> None:
    page, _ = open_page(browser, page_file)
    for role in ("banner", "navigation", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1, role
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(each => +each.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    charts = page.locator("svg[role=img]")
    assert charts.count() == 4
    for at in range(charts.count()):
        assert charts.nth(at).locator("title").first.text_content()
        assert charts.nth(at).locator("desc").text_content()
    assert page.locator("svg:not([role=img]):not([aria-hidden] svg):not([aria-hidden])").count() == 0
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator("html[lang=en]").count() == 1


def test_each_chart_has_its_data_as_a_table(browser: Any, page_file: Path) -> None:
    page, _ = open_page(browser, page_file)
    for name in ("Days as a table", "Hours as a table", "Delegated access as a table"):
        details = page.locator("details", has_text=name)
        details.locator("summary").focus()
        page.keyboard.press("Enter")
        assert details.locator("table").is_visible()


def test_the_keyboard_reaches_everything(browser: Any, page_file: Path) -> None:
    page, _ = open_page(browser, page_file)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    wanted = page.locator("a, summary, [tabindex='0']").count()
    page.keyboard.press("Home")
    seen = set()
    for _ in range(3 * wanted):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate("[...document.querySelectorAll('a, summary, [tabindex]')].indexOf(document.activeElement)")
        )
    visible = page.locator("a:visible, summary:visible, [tabindex='0']:visible").count()
    assert len(seen - {-1}) >= visible - 1
    outline = page.evaluate("getComputedStyle(document.querySelector(':focus-visible')).outlineStyle")
    assert outline == "solid"


def test_links_of_findings_show_their_evidence(browser: Any, page_file: Path) -> None:
    page, _ = open_page(browser, page_file, reduced_motion="reduce")
    page.get_by_role("link", name="See the grants").click()
    assert page.locator("#grants").evaluate("each => each.getBoundingClientRect().top") < 400


def test_an_empty_lake_has_a_page(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(empty_report()))
    page, noise = open_page(browser, file, color_scheme="dark")
    assert noise == []
    assert page.evaluate(CONTRAST) == []
    assert page.get_by_role("heading", name="No decision yet").is_visible()
