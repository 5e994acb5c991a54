"""The page in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rolecraft.report import write_report
from rolecraft.screening import ScreenResults
from tests.report import planted
from tests.report.test_report import HOSTILE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = planted.results(12)
    table = results.table.copy()
    table.loc[table["role"] == "rising-0", "answer"] = HOSTILE
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(ScreenResults(**vars(results) | {"table": table}), path)


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["desk", "phone"])
def page(browser: Any, report: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    width, scheme = request.param
    opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems: list[str] = []
    asked: list[str] = []
    opened.on("console", lambda message: problems.append(message.text))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(report.as_uri())
    yield opened
    assert problems == []
    assert {url.split("#")[0] for url in asked} == {report.as_uri()}
    opened.close()


def test_charts_are_drawn_and_the_page_does_not_scroll_sideways(page: Any) -> None:
    for name in ("gain", "margin", "bigrams", "chosen", "pca", "levels", "norm"):
        assert page.locator(f"#chart-{name} > svg").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("#chart-pca .point").count() == 11


def test_a_row_opens_its_section(page: Any) -> None:
    page.locator("#heat tr[data-role='looping-7'] td.shape").click()
    section = page.locator("#role-looping-7")
    assert section.get_attribute("open") is not None
    assert section.locator(".curves svg").count() == 6
    assert section.locator(".answer").count() == 6
    assert section.locator(".health .bad").count() == 6
    before = section.locator(".answer").first.inner_text()
    section.locator(".questions button").nth(2).click()
    assert section.locator(".answer").first.inner_text() != before
    assert page.evaluate("location.hash") == "#role-looping-7"


def test_the_keyboard_opens_a_section(page: Any) -> None:
    page.locator("#heat a[href='#role-anti-4']").focus()
    page.keyboard.press("Enter")
    assert page.locator("#role-anti-4").get_attribute("open") is not None
    assert page.evaluate("document.activeElement.closest('details').id") == "role-anti-4"


def test_a_link_to_a_role_opens_it(page: Any, report: Path) -> None:
    page.goto(f"{report.as_uri()}#role-flat-2")
    page.wait_for_function("document.getElementById('role-flat-2').open")
    assert page.locator("#role-flat-2 .curves svg").count() == 6


def test_filters_hold_for_table_and_sections(page: Any) -> None:
    page.locator("#filter").fill("looping")
    assert page.locator("#shown").inner_text() == "1 of 12 shown"
    assert page.locator("#heat tbody tr:visible").count() == page.locator("details.role:visible").count() == 1
    page.locator("#filter").fill("")
    page.locator(".toggles [data-verdict='PASS']").click()
    assert page.locator("#shown").inner_text() == "6 of 12 shown"
    page.evaluate("location.hash = '#role-rising-0'")
    page.wait_for_function("document.getElementById('role-rising-0').open")
    assert page.locator("#shown").inner_text() == "12 of 12 shown"


def test_columns_sort_both_ways_with_unknown_last(page: Any) -> None:
    head = page.locator("#heat thead th").nth(5)
    values = "[...document.querySelectorAll('#heat tbody tr')].map(row => row.cells[5].dataset.v)"
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    down = [float(v) for v in page.evaluate(values) if v]
    assert down == sorted(down, reverse=True)
    head.locator("button").click()
    up = page.evaluate(values)
    assert [float(v) for v in up if v] == down[::-1]
    assert up[-1] == ""


def test_hostile_answers_are_shown_as_text(page: Any) -> None:
    page.locator("#heat a[href='#role-rising-0']").click()
    assert page.locator("#role-rising-0 .answer p").first.inner_text().startswith("</script>")
    assert page.locator("img").count() == 0
    assert page.title().startswith("Role screen")
