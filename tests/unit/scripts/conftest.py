"""A real browser for pages. Needs Chromium and its driver."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scripts.pages import support_page
from tests.support.required import lacking


@pytest.fixture(scope="session")
def support_html(tmp_path_factory) -> Path:
    """The table with filters, as the site has it."""
    page = tmp_path_factory.mktemp("support") / "support.html"
    page.write_text(support_page.page("support.html"))
    return page


@pytest.fixture(scope="module")
def browser():
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        lacking("browser", "no Chromium with its driver here (Debian: chromium, chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=Service(driver)) as opened:
        yield opened


@pytest.fixture
def show(browser, support_html):
    """`show(page, width, scheme)`: the browser with that page, as wide as that and in light or dark."""

    def shown(page: Path = support_html, width: int = 1280, scheme: str = "light"):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        browser.get(page.as_uri())
        return browser

    return shown
