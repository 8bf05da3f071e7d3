"""docs/upstream: each report can be sent as it stands, is listed with its state, and is named by the fix that it is about."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from attnfix.cli import releases
from attnfix.cli.listing import describe
from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import BY_ID, FIXES
from scripts.pages import fix_pages
from tests.support.pages import Page

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "upstream"
REPORTS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
LIST, _, LACKING = (FOLDER / "README.md").read_text().partition("## What the drafts lack")


def rows(text: str) -> dict[str, list[str]]:
    """First cell of each row that begins with a link → the others."""
    found = [re.findall(r"(?<=\| ).*?(?= \|)", line) for line in text.splitlines()]
    return {row[0]: row[1:] for row in found if row and row[0].startswith("[")}


ROWS = rows(LIST)


def row(report: Path) -> list[str]:
    (found,) = [cells for name, cells in ROWS.items() if name.endswith(f"]({report.name})")]
    return found


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_a_report_has_what_a_maintainer_asks_for(report):
    text = report.read_text()
    parts = dict(re.findall(r"^## (\w+)[^\n]*\n(.*?)(?=^## |\Z)", text, re.S | re.M))
    assert {"Reproduce", "Cause", "Suggested"} <= parts.keys()
    assert re.search(r"`[\w/]+\.py:\d+", parts["Cause"]), "the cause names no line"
    assert re.search(r"\d\.\d+\.\d+", text), "no release"


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_the_first_line_says_whether_the_newest_release_has_the_bug(report):
    found = re.match(
        r"# [^\n]+\n\n\*\*(Affected|Not affected): (\w+) ([\w.]+), the newest release known here\b", report.read_text()
    )
    assert found, "the line below the title"
    engine = found[2].lower()
    assert engine == report.stem.partition("-")[0] and found[3] == newest(engine)
    for fix in FIXES:
        if fix.upstream.report == report.stem:
            assert (ledger.load(fix).verdict(found[3]) == ledger.AFFECTED) == (found[1] == "Affected"), fix.id


@cache
def newest(engine: str) -> str:
    return releases.known([ledger.load(fix) for fix in FIXES if fix.engine == engine])[-1]


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_links_work_where_a_report_is_pasted(report):
    assert [link for link in Page(report).links if not link.startswith("https://")] == []


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_a_bug_is_reproduced_with_the_engine_alone_or_the_report_says_that_it_is_not(report):
    part = report.read_text().partition("## Reproduce")[2].partition("\n## ")[0]
    scripts = [
        code for code in Page(report, part).blocks_in("python") if not re.search(r"^\s*(from|import) attnfix", code, re.M)
    ]
    servers = re.findall(r"vllm serve|sglang\.launch_server", part)
    assert scripts or servers or "No script without attnfix" in part
    for script in scripts:
        compile(script, report.name, "exec")


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_a_report_is_listed_with_its_state_and_its_fix_names_it(report):
    goes_to, seen_on, fix, state = row(report)
    assert goes_to.partition(",")[0] in ("new issue", "comment") and state in ("draft", "ready", "sent")
    assert re.search(r"(CPU|H100|H200), \d\.\d+|CPU, all", seen_on)
    about = [
        fix_pages.sources()[path].removeprefix("fixes/").removesuffix(".md") for path in re.findall(r"\(\.\./\.\./(.+)\)", fix)
    ]
    assert about == [name for name, each in BY_ID.items() if each.upstream.report == report.stem]
    assert all(BY_ID[name].default != fix.endswith(", off") for name in about)


def test_what_each_draft_lacks_is_said():
    drafts = {name for name, cells in ROWS.items() if cells[-1] == "draft"}
    assert {name for name, (lacks,) in rows(LACKING).items() if lacks} == drafts


def test_the_list_has_nothing_else():
    assert len(ROWS) == len(REPORTS)


def test_the_safety_page_names_each_fix_that_is_on_before_a_release_corrects_the_bug():
    limits = (FOLDER.parent / "safety.md").read_text().partition("## Limits of the evidence")[2]
    ahead = {fix.id for fix in FIXES if fix.default and (about := describe(fix))["affected"] and not about["fixed_in"]}
    assert ahead and {name for name in ahead if f"`{name}`" not in limits} == set()
