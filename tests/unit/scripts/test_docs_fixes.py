"""Pages of fixes say what fix.py, ledger and matrix say; `generate.py --check` sees a page that is out of date."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attnfix.patches.catalogue import FIXES

ROOT = Path(__file__).resolve().parents[3]

from attnfix.cli.listing import describe  # noqa: E402
from scripts.pages import fix_pages, gpu_runs, support_page  # noqa: E402


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
def test_a_page_holds_what_is_known_of_the_fix(fix):
    text = fix_pages.page(fix)
    data = (fix.title, fix.symptom, fix.cause, fix.correction, fix.hardware, fix.default_reason, fix.cost, fix.expect)
    for part in (*data, fix.avoid or fix.title, describe(fix)["remove_when"], fix.switch, *fix.upstream.links):
        assert part in text
    for place in fix.code_paths:
        assert f"`{place}`" in text, "every target and witness"
    assert str(fix.worst_cost or "| worst cost | tokens/s were not measured") in text


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
def test_the_worst_cost_is_the_lowest_that_was_measured(fix):
    """The evidence holds no row of a fix that is worse, and the figure stands in the run that is named."""
    seen = [run["firing"][fix.id]["tokens"] for run in gpu_runs.runs() if fix.id in run.get("firing", {})]
    if fix.worst_cost is None:
        assert not seen
        return
    (run,) = [run for run in gpu_runs.runs() if run["file"] == f"{fix.worst_cost.run}.json"]
    row = [fix.worst_cost.tokens, fix.worst_cost.low, fix.worst_cost.high]
    assert row == run.get("firing", {}).get(fix.id, {}).get("tokens") or fix.worst_cost.figure in json.dumps(run["cases"])
    assert all(fix.worst_cost.tokens <= tokens for tokens, _, _ in seen)


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
def test_every_code_that_was_proven_has_its_figures(fix):
    rows = fix_pages.page(fix).splitlines()
    proven = [cell for cell in support_page.cells() if cell["fix"] == fix.id and cell["verdict"] == "proven"]
    assert proven
    for cell in proven:
        same = [other for other in proven if (other["edit"] or other["code"]) == (cell["edit"] or cell["code"])]
        errors = [[one[f"{side}_error"] for one in same] for side in ("stock", "fixed")]  # null is what was not finite
        worst = [support_page.number(None if None in each else max(each)) for each in errors]
        named = f"| {cell['edit']} |" if cell["edit"] else f"| `{cell['code']}` |"
        (row,) = [row for row in rows if named in row]
        assert " → ".join(worst) in row


def test_a_page_links_its_sources_and_docs_link_to_those():
    for source, page in fix_pages.sources().items():
        assert (ROOT / source).is_file() and page in fix_pages.pages()
        assert f"../../{source}" in fix_pages.pages()[page]()


@pytest.fixture
def checkout(tmp_path):
    """What generate.py reads and writes, to spoil."""
    for name in ("docs", "scripts", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def generate(checkout: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "scripts.pages.generate", *arguments]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=120)


def test_check_names_a_page_that_was_edited_and_one_that_lacks(checkout):
    edited, lacking = checkout / "docs" / "symptoms.md", checkout / "docs" / "support.md"
    edited.write_text(edited.read_text().replace("No error", "An error"))
    lacking.unlink()
    done = generate(checkout, "--check")
    assert done.returncode == 1
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["docs/support.md", "docs/symptoms.md"]
    assert generate(checkout).returncode == 0
    assert "An error" not in edited.read_text() and lacking.is_file()
    assert generate(checkout, "--check").returncode == 0
