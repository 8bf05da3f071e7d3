"""support.html of the site in a real browser: legible, sortable by release, nothing on the console. Needs Chromium."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.version import Version

from attnfix.patches.catalogue import BY_ID, FIXES
from tests.support.looks import illegible, overflow

ROOT = Path(__file__).resolve().parents[3]

from scripts.pages import who_is_hit  # noqa: E402

CELLS = json.loads((ROOT / "docs" / "evidence" / "matrix" / "matrix.json").read_text())["cells"]
SIZES = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]

#: Columns of a grid that stay in sight beside the first one
MARKS_IN_SIGHT = """
const box = document.querySelector(".scroll").getBoundingClientRect();
return [...document.querySelectorAll(".scroll tbody tr:first-child .mark")].filter((mark) => {
  return mark.getBoundingClientRect().right <= box.right;
}).length;
"""


def table(browser, number: int) -> list[list[str]]:
    """Rows of one table as they stand: of each cell its text, or the kind of its mark."""
    script = """
    const shown = (cell) => cell.innerText.trim() || cell.querySelector("i").className;
    return [...document.querySelectorAll("table")[arguments[0]].tBodies[0].rows].map((row) => [...row.cells].map(shown));
    """
    return [[cell.split("\n")[0] for cell in row] for row in browser.execute_script(script, number)]


def click(browser, number: int, header: str) -> int:
    """Click the header of that text; its column."""
    from selenium.webdriver.common.by import By

    headers = browser.find_elements(By.TAG_NAME, "table")[number].find_elements(By.CSS_SELECTOR, "thead th")
    texts = [each.text.rstrip(" ▲▼") for each in headers]
    button = headers[texts.index(header)].find_element(By.TAG_NAME, "button")
    browser.execute_script("arguments[0].scrollIntoView({ block: 'center', inline: 'center' })", button)
    button.click()
    return texts.index(header)


def first_affected(fix: str) -> str:
    releases = [cell["release"] for cell in CELLS if cell["fix"] == fix and cell["verdict"] == "proven" and not cell["edit"]]
    return min(releases, key=Version, default="-")


def by_version(text: str) -> Version:
    return Version("9999") if text == "-" else Version("9998") if text == "not yet" else Version(text)


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_every_text_can_be_read(show, width, scheme):
    assert illegible(show(width=width, scheme=scheme)) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_sticks_out(show, width):
    page = show(width=width)
    assert overflow(page) == []
    assert page.execute_script(MARKS_IN_SIGHT) > (30 if width == 1280 else 0)


def test_the_page_is_whole_and_says_nothing_on_the_console(show):
    page = show()
    page.get_log("browser")  # forget what other pages said
    page.refresh()
    assert len(table(page, 0)) + len(table(page, 1)) == len({cell["fix"] for cell in CELLS})
    click(page, 0, "fixed in")
    assert page.get_log("browser") == []
    assert page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []


@pytest.mark.parametrize(("number", "engine"), [(0, "sglang"), (1, "vllm")])
@pytest.mark.parametrize(("header", "column"), [("affected from", 1), ("fixed in", 2)])
def test_a_click_sorts_by_release_and_another_one_turns_it(show, number, engine, header, column):
    page = show()
    before = table(page, number)
    releases = [row[column] for row in before]
    up = sorted(releases, key=by_version)
    assert releases != up, "or a click that does nothing would pass"
    assert click(page, number, header) == column
    after = table(page, number)
    assert [row[column] for row in after] == up
    assert sorted(after) == sorted(before), "each row keeps its cells"
    assert [row[1] for row in after] == [first_affected(f"{engine}.{row[0]}") for row in after], "as in the matrix"
    click(page, number, header)
    assert [row[column] for row in table(page, number)] == up[::-1]


def test_a_click_on_a_release_brings_up_what_it_needs(show):
    page = show()
    column = click(page, 1, "0.25.1")
    kinds = [row[column] for row in table(page, 1)]
    proven = [BY_ID[c["fix"]].default for c in CELLS if c["release"] == "0.25.1" and c["verdict"] == "proven"]
    needed, optional = proven.count(True), proven.count(False)
    assert kinds[: len(proven)] == ["proven"] * needed + ["optional"] * optional
    assert not {"proven", "optional"} & {*kinds[len(proven) :]}
    assert table(show(), 1)[0][column] != "proven", "as the page comes, another row is first"


def test_a_cell_tells_its_figures(show):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    page = show()
    mark = page.find_element(By.CSS_SELECTOR, ".mark i.proven")
    ActionChains(page).move_to_element(mark).perform()
    card = page.find_element(By.ID, "card")
    assert card.is_displayed()
    assert card.text == mark.get_attribute("data-tip") and "→" in card.text
    assert illegible(page) == []


def filtered(page, **chosen: str) -> list[str]:
    """Names of the fixes that are shown once these values are chosen."""
    script = """
    const form = document.querySelector(".filter");
    form.reset();
    for (const [name, value] of Object.entries(arguments[0])) form.elements[name].value = value;
    form.dispatchEvent(new Event("input"));
    const rows = [...document.querySelectorAll("section.engine tbody tr")].filter((row) => row.checkVisibility());
    return rows.map((row) => row.closest("section").id + "." + row.querySelector("b").textContent);
    """
    return page.execute_script(script, chosen)


def test_the_filter_shows_what_may_concern_a_deployment(show):
    page = show()
    assert filtered(page) == [fix.id for fix in sorted(FIXES, key=lambda fix: fix.engine)]
    hopper, family = "H100, H200", "Gemma"
    wanted = {fix.id for fix in FIXES if hopper in who_is_hit.gpus(fix) and family in who_is_hit.families(fix)}
    assert set(filtered(page, gpu=hopper, model=family)) == wanted
    needed = {cell["fix"] for cell in CELLS if cell["release"] == "0.25.1" and cell["verdict"] == "proven"}
    assert set(filtered(page, release="vllm 0.25.1")) == needed
    assert set(filtered(page, engine="sglang", words="soft cap")) >= {"sglang.flashinfer-soft-cap"}
    assert filtered(page, words="no such word") == []
    assert page.find_element("css selector", ".filter output").text.startswith("0 of ")


def test_the_keyboard_alone_filters_and_goes_through_the_table(show):
    """A row of cells is one stop of the Tab key; what has the focus is framed, and a cell tells its figures."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    page = show()
    focus = "return document.activeElement"

    def press(*keys):
        for key in keys:
            ActionChains(page).send_keys(key).perform()
        framed = "const it = document.activeElement; return it.matches(':focus-visible') && getComputedStyle(it).outlineStyle"
        assert page.execute_script(framed) != "none"
        return page.execute_script(focus)

    assert press(Keys.TAB).text == "attnfix documentation"
    assert press(Keys.TAB, "v").get_attribute("value") == "vllm"
    words = press(*[Keys.TAB] * 4)
    assert words.get_attribute("name") == "words"
    press("dynamic_scaled_int8")
    assert page.find_element("css selector", ".filter output").text.startswith("1 of ")
    heads = [press(Keys.TAB).text for _ in range(5)]
    assert heads == ["all", "fix", "affected from", "fixed in", "0.10.0"]
    assert press(Keys.END).text == "0.33.0" and press(Keys.ARROW_LEFT).text == "0.32.0"
    assert press(Keys.TAB).text == "int8-mla-context"
    assert press(Keys.TAB, Keys.END).get_attribute("data-tip") == page.find_element("id", "card").text
    assert "vllm 0.33.0" in page.find_element("id", "card").text
    assert press(Keys.TAB).tag_name != "i", "one stop, not one for each release"
