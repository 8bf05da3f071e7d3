"""The site of docs/, built strictly and looked at in a real browser: whole, legible, nothing from elsewhere, a way back from
every page, and a search that finds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from packaging.version import Version

from attnfix.compat.engines import ENGINES
from attnfix.compat.gate import ledger
from attnfix.compat.symptoms import SYMPTOMS
from attnfix.patches.catalogue import FIXES
from scripts.pages import symptoms_page, who_is_hit
from tests.support.looks import illegible

ROOT = Path(__file__).resolve().parents[3]
LOOKED_AT = (
    "index.html", "symptoms.html", "symptoms-vllm.html", "symptoms-sglang.html", "fixes/vllm.lse-log-base.html",
    "quickstart-vllm.html", "fleets.html", "upstream/index.html", "transcripts.html",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == 0 and not done.stderr, done.stderr
    return folder


@pytest.fixture(scope="module")
def served(site):
    handler = partial(_Quiet, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


class _Links(HTMLParser):
    def __init__(self, page: Path):
        super().__init__()
        self.found: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag, attributes):
        self.found |= {value for name, value in attributes if name in ("href", "src") and value}


def pages(site: Path) -> dict[Path, set[str]]:
    """page -> its links within the site, as paths."""
    found = {}
    for page in site.rglob("*.html"):
        inner = {link for link in _Links(page).found if not urlsplit(link).scheme and not link.startswith(("#", "/"))}
        found[page] = {(page.parent / unquote(urlsplit(link).path)).resolve() for link in inner if urlsplit(link).path}
    return found


def test_every_link_leads_somewhere_and_every_page_back(site):
    linked = pages(site)
    assert len(linked) > len(FIXES) + 20
    home = site / "index.html"
    for page, targets in linked.items():
        assert {target for target in targets if not target.exists()} <= {site}, page
        assert page in (home, site / "404.html") or targets & {home, site}, f"no way back from {page}"


def test_links_of_docs_to_a_fix_lead_to_its_page(site):
    linked = pages(site)
    for name in ("symptoms.html", "switches.html", "upstream/index.html"):
        assert not {target for target in linked[site / name] if target.name.startswith("fix.py")}, name
    assert {site / f"fixes/{fix.id}.html" for fix in FIXES} <= linked[site / "symptoms.html"] & linked[
        site / "fixes/index.html"
    ]
    assert site / "transcripts.html" in linked[site / "index.html"]


def test_every_symptom_has_a_place_and_every_fix_a_symptom():
    text = symptoms_page.page()
    for fix in FIXES:
        assert fix.symptoms and set(fix.symptoms) <= set(SYMPTOMS), fix.id
        assert text.count(_link(fix)) == len(fix.symptoms)
        assert text.count(fix.symptom) == 1, "the whole of it, where it is most telling"
    assert all(f"\n## {symptom}\n" in text for symptom in SYMPTOMS)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_release_shows_each_of_its_bugs_by_what_is_seen(engine):
    sections = re.split(r"^## ", symptoms_page.engine_page(engine), flags=re.M)[1:]
    books = [(fix, ledger.load(fix)) for fix in FIXES if fix.engine == engine]
    for section in sections:
        heading, _, text = section.partition("\n")
        for release in heading.partition(" ")[2].split(", "):
            for fix, book in books:
                assert (_link(fix) in text) is (book.verdict(release) == ledger.AFFECTED), (release, fix.id)
    shown = [release for section in sections for release in section.partition("\n")[0].partition(" ")[2].split(", ")]
    assert shown == sorted({release for _, book in books for release, _ in book.releases()}, key=Version, reverse=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_release_is_read_on_a_telephone(engine):
    """Ten rows at most, of two columns, and the next command in each section: it is entered by a link."""
    for section in re.split(r"^## ", symptoms_page.engine_page(engine), flags=re.M)[1:]:
        rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
        assert 0 < len(rows) <= 10 and all(row.count(" | ") == 1 for row in rows), section
        assert f"attnfix doctor --engine {engine}==" in section and f"(quickstart-{engine}.md)" in section


def test_readme_leads_to_every_release():
    text = (ROOT / "README.md").read_text()
    for engine in ENGINES:
        for heading in re.findall(r"^## (.+)$", symptoms_page.engine_page(engine), re.M):
            assert f"](docs/symptoms-{engine}.md#{symptoms_page.anchor(heading)})" in text


def _link(fix) -> str:
    return f"](../patches/{fix.package.replace('.', '/')}/fix.py)"


def test_every_fix_may_concern_some_model_and_some_gpu():
    for fix in FIXES:
        assert who_is_hit.families(fix), f"{fix.id}: no family of models"
        assert who_is_hit.gpus(fix), f"{fix.id}: 'hardware' names no GPU that the page knows"


def test_the_filter_asks_facts_that_there_are():
    """A fact that is renamed would no longer exclude anything."""
    names = {name for fix in FIXES if fix.hits for name in fix.hits.names}
    known = set(who_is_hit.SWITCHES) | {"attention"}
    assert known <= names, f"no fix asks for {known - names}"
    assert len(ENGINES) == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_page_can_be_read(browser, served, name, width, scheme):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    browser.get(f"{served}/{name}")
    shown = browser.execute_script("return document.body.getAttribute('data-md-color-scheme')")
    assert shown == {"light": "default", "dark": "slate"}[scheme]
    assert illegible(browser, ".md-content") == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [address for address in loaded if not address.startswith(served)] == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_the_search_finds_a_fix(browser, served):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(f"{served}/index.html?q=mamba-prefix-cache")
    results = WebDriverWait(browser, 20).until(lambda page: page.find_elements(By.CSS_SELECTOR, ".md-search-result__item a"))
    assert any("vllm.mamba-prefix-cache.html" in result.get_attribute("href") for result in results)


def test_the_keyboard_alone_gets_to_the_text(browser, served):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.get(f"{served}/symptoms.html")
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    skip = browser.switch_to.active_element
    assert skip.get_attribute("textContent").strip() == "Skip to content"
    skip.send_keys(Keys.ENTER)
    assert browser.current_url.endswith("#which-bug-do-i-have")
