"""The page in a real Chromium, by clicks and by keys; its console stays silent.

Every page of a pipeline that runs, of one that was killed and of one that is damaged.

LAMINA_PICTURES=1 draws the pictures of docs/ui.md anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: lamina[dev]")

from playwright.sync_api import Browser, Page, expect

from lamina.clock import SystemClock
from tests.support.browser import Complaints, browser, chromium_missing, served
from tests.support.consoles import Project, make_project, running

if missing := chromium_missing():
    pytest.skip(missing, allow_module_level=True)

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
TABS = ("Pipeline", "Epochs", "Checkpoints", "State", "Recovery", "Log")
EPOCHS = 84
expect.set_options(timeout=60_000)


@dataclass(frozen=True)
class Opened:
    """A browser, and a page of three pipelines of which `trades` runs."""

    browser: Browser
    url: str
    project: Project

    def page(self, *, scheme: str = "light", width: int = 1280, height: int = 860) -> Page:
        context = self.browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": height},
        )
        context.set_default_timeout(60_000)
        return context.new_page()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    now_ms = SystemClock().now_ms() - EPOCHS * 20_000
    folder = tmp_path_factory.mktemp("shop")
    project = make_project(folder, epochs=EPOCHS, keys=24_000, now_ms=now_ms)
    with (
        running(project, "trades", first=EPOCHS + 1),
        served(folder, "--allow-actions") as url,
        browser() as started,
    ):
        yield Opened(started, url.rstrip("/"), project)


@pytest.fixture
def page(opened: Opened) -> Iterator[Page]:
    """A page that must have nothing to complain about."""
    found = opened.page()
    complaints = Complaints(found)
    yield found
    found.context.close()
    assert complaints.found == []


@pytest.mark.parametrize("name", ["trades", "orders", "billing"])
def test_every_page_is_reached_by_clicks(opened: Opened, page: Page, name: str) -> None:
    page.goto(opened.url)
    page.get_by_role("link", name=name, exact=True).click()
    tabs = page.get_by_role("navigation", name="Parts of this pipeline")
    for tab in TABS:
        tabs.get_by_role("link", name=tab).click()
        expect(tabs.locator("[aria-current=page]")).to_have_text(tab)
        expect(page.locator("h1")).to_be_visible()
    tabs.get_by_role("link", name="Checkpoints").click()
    rows = page.locator("table.lineage tbody tr")
    for number in range(rows.count()):
        rows.nth(number).get_by_role("link").first.click()
        expect(page.locator("h1")).to_contain_text("Epoch")
        page.get_by_role("link", name="← Checkpoints").click()


def test_state_is_browsed_and_compared(opened: Opened, page: Page) -> None:
    page.goto(f"{opened.url}/p/trades/state")
    page.get_by_role("link", name=re.compile("^totals")).click()
    expect(page.locator("table.data tbody tr")).to_have_count(50)
    page.get_by_role("link", name="next →").click()
    expect(page.locator("table.data tbody tr")).to_have_count(50)
    symbol = page.locator("table.data tbody td").first.inner_text()
    page.get_by_label("symbol").fill(symbol)
    page.get_by_role("button", name="Show").click()
    expect(page.locator("table.data tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Compare…").click()
    page.get_by_label("From").fill("16")
    page.get_by_label("to", exact=True).fill("80")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".counts").last).to_contain_text("changed")


def test_a_verification_shows_what_it_finds(opened: Opened, page: Page) -> None:
    for name, verdict in (("orders", "as it was written"), ("billing", "damaged or missing")):
        page.goto(f"{opened.url}/p/{name}/recovery")
        page.get_by_role("button", name="Verify everything").click()
        expect(page.locator(".verdict")).to_contain_text(verdict)


def test_the_page_follows_what_runs(opened: Opened, page: Page) -> None:
    page.goto(f"{opened.url}/p/trades")
    epoch = page.locator("#head .fact dd").first
    before = epoch.inner_text()
    expect(page.locator("#live")).to_contain_text("live")
    expect(epoch).not_to_have_text(before)


def test_keys_lead_everywhere(opened: Opened, page: Page) -> None:
    page.goto(f"{opened.url}/p/orders")
    page.keyboard.press("3")
    expect(page.locator("h1")).to_have_text("Checkpoints")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("Epoch")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.keyboard.press("4")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")  # it is remembered
    page.keyboard.press("/")
    page.keyboard.type("3g")  # in a field, keys are letters
    expect(page.get_by_label("At", exact=True)).to_have_value("3g")
    page.keyboard.press("Escape")


def test_the_first_key_skips_to_the_content(opened: Opened, page: Page) -> None:
    page.goto(f"{opened.url}/p/orders")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_a_phone_shows_it_without_scrolling_sideways(opened: Opened) -> None:
    page = opened.page(width=360, height=780)
    for path in (
        "/?all",
        "/p/trades",
        "/p/trades/epochs",
        "/p/trades/checkpoints",
        "/p/trades/wal",
    ):
        page.goto(opened.url + path)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, path
    page.context.close()


def test_what_people_see_has_names_and_order(opened: Opened, page: Page) -> None:
    """Each page: one main, one h1 before any h2, pictures and fields with names."""
    id = opened.project.manifests("trades")[-1].parent.name
    paths = ("", "/epochs", "/checkpoints", f"/checkpoints/{id}", "/state?operator=totals", "/wal")
    for path in ("/?all", *(f"/p/trades{each}" for each in paths)):
        page.goto(opened.url + path)
        assert page.locator("main").count() == 1, path
        assert page.locator("h1").count() == 1, path
        assert page.locator("svg[role=img]:not([aria-label])").count() == 0, path
        unnamed = "input:not([type=hidden]):not([aria-label])"
        assert page.locator(f"main {unnamed}").count() == page.locator(f"label {unnamed}").count()


def test_stopping_asks_the_pipeline(opened: Opened, page: Page) -> None:
    page.goto(f"{opened.url}/p/trades")
    page.get_by_text("Stop…").click()
    page.get_by_role("button", name="Stop the pipeline").click()
    expect(page.locator("h1")).to_have_text("trades")
    assert (opened.project.home("trades") / "requests" / "stop").exists()


@pytest.mark.skipif("LAMINA_PICTURES" not in os.environ, reason="only drawn when asked")
def test_pictures_for_the_docs(opened: Opened) -> None:
    id = opened.project.manifests("trades")[-1].parent.name
    shots = {
        "overview": ("/?all", "light", 1180, 400),
        "pipeline": ("/p/trades", "light", 1180, 1000),
        "checkpoint": (f"/p/trades/checkpoints/{id}", "light", 1180, 900),
        "damage": ("/p/billing/checkpoints", "light", 1180, 460),
        "phone": ("/p/trades", "dark", 390, 844),
    }
    for name, (path, scheme, width, height) in shots.items():
        page = opened.page(scheme=scheme, width=width, height=height)
        page.goto(opened.url + path)
        page.wait_for_timeout(1500)
        page.screenshot(path=PICTURES / f"ui-{name}.png")
        page.context.close()
