"""The page in a real browser: what it shows is what the API says, whoever looks and however."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from collector.honesty import STATES
from tests.page.conftest import Collector, opened, running_collector

pytestmark = pytest.mark.browser


def texts(page: Chrome, selector: str) -> list[str]:
    """Read in one step: the page may redraw a table at any time."""
    found: list[str] = page.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText)", selector
    )
    return found


def names(page: Chrome, table: str) -> list[str]:
    return texts(page, f"#{table} tbody th")


def until(page: Chrome, condition: Any) -> None:
    WebDriverWait(page, 10).until(lambda _: condition())


def test_every_state_has_its_badge_and_unknown_is_never_zero(browser: Chrome, lived_in: Collector) -> None:
    page = opened(browser, lived_in.url)
    badges = set(texts(page, ".badge"))
    assert {state.badge for state in STATES} <= badges
    for row, shown in zip(lived_in.rows("models"), texts(page, "#models .figure"), strict=True):
        assert (shown == "unknown") == (row["cost_usd"] is None)
        assert (shown == "$0.00") == (row["cost_usd"] == 0)


def test_the_cards_show_what_the_summary_says(browser: Chrome, lived_in: Collector) -> None:
    page = opened(browser, lived_in.url)
    for row in lived_in.rows("summary"):
        card = f"[data-window='{row['window']}']"
        if not texts(page, card) or not row["calls"]:
            continue
        (figure,) = texts(page, f"{card} .figure")
        assert float(re.sub(r"[≥$, ]", "", figure)) == pytest.approx(row["cost_usd"], rel=0.01)
        assert texts(page, f"{card} dd")[0] == f"{row['calls']:,}"


def test_a_badge_says_why_on_focus_and_closes_on_escape(browser: Chrome, lived_in: Collector) -> None:
    page = opened(browser, lived_in.url)
    badge = page.find_element(By.CSS_SELECTOR, "#models .badge.tokens_only")
    page.execute_script("arguments[0].focus()", badge)
    why = page.find_element(By.ID, "why")
    assert "no call could be priced" in why.text
    assert badge.get_attribute("aria-describedby") == "why"
    ActionChains(page).send_keys(Keys.ESCAPE).perform()
    assert not why.is_displayed()


def test_a_badge_says_why_on_hover(browser: Chrome, lived_in: Collector) -> None:
    page = opened(browser, lived_in.url)
    ActionChains(page).move_to_element(page.find_element(By.CSS_SELECTOR, "#models .badge.exact")).perform()
    until(page, lambda: "Nothing is missing" in page.find_element(By.ID, "why").text)


def test_a_badge_tells_of_a_second_estimate_beside_the_first(browser: Chrome, lived_in: Collector) -> None:
    page = opened(browser, lived_in.url)
    row = "{cost_status: 'exact', second_estimate_calls: 2, second_estimate_at: '2026-12-01T00:00:00.000Z', %s}"
    ask = "const done = arguments[0]; import('/page/badge.js').then((badge) => done(badge.reasons(%s)))"
    priced = row % "second_estimate_usd: 1.5, second_estimate_first_usd: null"
    assert page.execute_async_script(ask % priced)[-1] == (
        "Second estimate of 2026-12-01, in no sum: $1.50 for 2 calls, priced unknown first."
    )


def test_sessions_come_a_page_at_a_time_with_the_keyboard(browser: Chrome, lived_in: Collector) -> None:
    page = opened(browser, lived_in.url)
    first = names(page, "sessions")
    assert len(first) == 50
    page.find_element(By.ID, "next-page").send_keys(Keys.ENTER)
    until(page, lambda: page.find_element(By.ID, "page-number").text == "page 2")
    second = names(page, "sessions")
    assert len(second) == 50
    assert not set(first) & set(second)
    page.find_element(By.ID, "previous-page").send_keys(Keys.ENTER)
    until(page, lambda: names(page, "sessions") == first)


def test_a_filter_narrows_everything_and_survives_a_reload(browser: Chrome, lived_in: Collector) -> None:
    page = opened(browser, lived_in.url)
    page.find_element(By.NAME, "runtime").send_keys("pi" + Keys.TAB)
    until(page, lambda: names(page, "runtimes") == ["pi"])
    page.refresh()
    until(page, lambda: names(page, "runtimes") == ["pi"])


def test_a_table_is_sorted_by_its_heads_and_unknown_stays_last(browser: Chrome, lived_in: Collector) -> None:
    page = opened(browser, lived_in.url)
    page.find_element(By.XPATH, "//*[@id='models']//thead//button[.='output']").click()
    shown = [text.replace(",", "") for text in texts(page, "#models tbody td:nth-child(6)")]
    known = [int(text) for text in shown if text != "unknown"]
    assert known == sorted(known, reverse=True)
    assert shown == [str(count) for count in known] + ["unknown"] * (len(shown) - len(known))
    assert page.find_element(By.CSS_SELECTOR, "#models [aria-sort]").get_attribute("aria-sort") == "descending"


@pytest.mark.parametrize("measure", ["cost", "tokens"])
@pytest.mark.parametrize("by", ["runtime", "model", "class"])
def test_the_chart_and_its_table_hold_the_same_days(
    browser: Chrome, lived_in: Collector, measure: str, by: str
) -> None:
    page = opened(browser, lived_in.url, f"window=all&measure={measure}&by={by}")
    assert page.find_elements(By.CSS_SELECTOR, "#chart canvas")
    page.execute_script("document.querySelector('details').open = true")
    days = [row["day"] for row in lived_in.rows("aggregates") if row["day"]]
    assert names(page, "days-table") == days


def test_missing_lines_are_shown(browser: Chrome, lived_in: Collector) -> None:
    page = opened(browser, lived_in.url)
    assert "9 (151–159)" in page.find_element(By.ID, "gaps").text


def test_dark_and_light(browser: Chrome, lived_in: Collector) -> None:
    page = opened(browser, lived_in.url)
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = page.execute_script(ground)
    page.find_element(By.ID, "theme").click()
    assert page.execute_script(ground) != light
    assert page.find_element(By.ID, "theme").get_attribute("aria-pressed") == "true"


def test_a_narrow_screen_scrolls_tables_and_not_the_page(browser: Chrome, lived_in: Collector) -> None:
    browser.set_window_size(500, 900)  # Chromium's least width
    page = opened(browser, lived_in.url)
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        width = page.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert width[0] <= width[1] == 390
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(browser: Chrome, lived_in: Collector, theme: str) -> None:
    page = opened(browser, lived_in.url)
    if theme == "dark":
        page.find_element(By.ID, "theme").click()
    page.execute_script("document.querySelector('details').open = true")
    page.execute_script(files("axe_core_python").joinpath("axe.min.js").read_text())
    found = page.execute_async_script(
        "axe.run(document, {resultTypes: ['violations']}).then(arguments[arguments.length - 1])"
    )
    assert [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found["violations"]] == []


def test_an_empty_ledger_says_what_to_do_and_updates_by_itself(browser: Chrome, tmp_path: Path) -> None:
    from tests.shim.test_line import GOLDEN

    with running_collector(tmp_path) as fresh:
        page = opened(browser, fresh.url)
        assert "usage-collector doctor" in page.find_element(By.ID, "empty").text
        (tmp_path / "usage.jsonl").write_bytes(GOLDEN)
        until(page, lambda: names(page, "models") == ["gpt-5-mini"])
        assert not page.find_element(By.ID, "empty").is_displayed()


def test_a_collector_that_is_gone_is_said_with_the_command_that_helps(chromium: Chrome, tmp_path: Path) -> None:
    with running_collector(tmp_path) as fresh:
        page = opened(chromium, fresh.url)
    until(page, lambda: "systemctl status usage-collector" in page.find_element(By.ID, "problem").text)
    assert page.find_element(By.ID, "freshness").text == "Not up to date"
    page.get("about:blank")
