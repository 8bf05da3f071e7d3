"""The matrix believes what it ran: a ledger that says otherwise, or an engine that was touched, is an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES
from attnfix.patches.lab.proof import Proof
from attnfix.prove import edited_release, runner
from attnfix.prove.verdict import FAILED, PROVEN, UNPROVEN, Result
from scripts.ledger import matrix

FIX = FIXES[0]
AFFECTED = next(release for release, verdict in ledger.load(FIX).releases() if verdict == ledger.AFFECTED)
HEALTHY = next(release for release, verdict in ledger.load(FIX).releases() if verdict == ledger.FIXED)
RED, GREEN = {"main": {"error": 3.0}, "kernel": "emulated"}, {"main": {"error": 0.001}, "kernel": "emulated"}
ABSENT = {"no_such_path": "not there", "kernel": "emulated"}
UNTOUCHED = {"untouched": True, "state": {"state": "fixed upstream", "reason": "files"}}
PROVEN_RESULT = Result(FIX.id, FIX.engine, "x", PROVEN, "", stock_error=3.0, fixed_error=0.001, corrections=2, code="c")


@pytest.fixture
def cells(monkeypatch):
    """`cells(release, stock, patched, proof)`: the cells of one release whose processes would have answered so."""

    def run(release, stock, patched=UNTOUCHED, proof=PROVEN_RESULT):
        monkeypatch.setattr(matrix.fetch, "fetch", lambda *a, **k: Path("site"))
        monkeypatch.setattr(matrix.judge, "judge", lambda *a: SimpleNamespace(code="c"))
        monkeypatch.setattr(matrix.runner, "run_sides", lambda *a, run, **k: {FIX.id: stock if run else patched})
        monkeypatch.setattr(matrix.runner, "run_side", lambda *a, **k: {})
        monkeypatch.setattr(matrix.runner, "conclude", lambda *a, **k: proof)
        monkeypatch.setattr(matrix.runner, "proof_of", lambda fix: Proof)
        (cell,) = matrix.cells(FIX.engine, release, [FIX])
        return cell

    return run


def test_what_was_seen_and_what_the_ledger_says_agree(cells):
    assert cells(AFFECTED, RED).verdict == "proven"
    assert cells(HEALTHY, GREEN).verdict == "fixed upstream"
    assert cells(HEALTHY, ABSENT).observed == "absent"


@pytest.mark.parametrize(
    "release, stock, patched, says",
    [
        (HEALTHY, RED, UNTOUCHED, "but the ledger says fixed upstream"),
        (AFFECTED, GREEN, UNTOUCHED, "but the ledger says affected"),
        (AFFECTED, ABSENT, UNTOUCHED, "but the ledger says affected"),
        (HEALTHY, GREEN, {**UNTOUCHED, "untouched": False}, "touched"),
        (HEALTHY, GREEN, {**UNTOUCHED, "state": {"state": "installed", "reason": ""}}, "the fix is installed"),
        (HEALTHY, GREEN, {"error": "no import"}, "no import"),
        (HEALTHY, {"error": "it broke"}, UNTOUCHED, "it broke"),
        (HEALTHY, {**GREEN, "main": {"error": 0.02}}, UNTOUCHED, "neither red nor green"),
    ],
)
def test_everything_else_is_an_error(cells, release, stock, patched, says):
    cell = cells(release, stock, patched)
    assert cell.verdict == "error" and says in cell.reason


@pytest.mark.parametrize("verdict", [FAILED, UNPROVEN])
def test_a_proof_that_does_not_hold_is_an_error(cells, verdict):
    result = Result(FIX.id, FIX.engine, AFFECTED, verdict, "because")
    assert (cells(AFFECTED, RED, proof=result).verdict, cells(AFFECTED, RED, proof=result).reason) == ("error", "because")


GDN = next(fix for fix in FIXES if fix.id == "vllm.gdn-uniform-decode")


@pytest.mark.parametrize(
    "release, inside",
    [("0.12.0", True), ("0.33.0", True), ("99.1", True), ("0.12.1.dev3+g123", True), ("0.12.0+cu128", True), ("unknown", True),
     ("0.11.2", False), ("0.11.2+cu128", False), ("0.12.0rc1", False)],
)  # fmt: skip
def test_which_releases_a_fix_examines(release, inside):
    assert runner.examined(GDN, release) is inside


@pytest.mark.parametrize(
    "release, kind, judged",
    [("0.11.1", ledger.UNKNOWN, False), ("0.11.1", ledger.AFFECTED, True), ("0.11.1", ledger.FIXED, True),
     ("0.34.0", ledger.UNKNOWN, True), ("unknown", ledger.UNKNOWN, True)],
)  # fmt: skip
def test_known_code_is_proven_whatever_it_calls_itself(monkeypatch, release, kind, judged):
    """A fork of an old release may hold the code of a new one, and is patched."""
    monkeypatch.setattr(runner.judge, "judge", lambda *a: SimpleNamespace(kind=kind))
    result = runner.not_judged(GDN, release, Path("/nowhere/vllm"))
    assert (result is None) is judged
    assert judged or (result.verdict, result.holds) == ("not judged", True)


def test_an_edited_copy_is_the_release_but_for_the_edit(tmp_path):
    root = tmp_path / "release" / "engine"
    (root / "deep" / "er").mkdir(parents=True)
    for name in ("__init__.py", "deep/__init__.py", "deep/er/__init__.py", "deep/er/code.py", "deep/other.py"):
        (root / name).write_text(f"name = {name!r}\n")
    (tmp_path / "release" / "engine-1.0.dist-info").mkdir()
    name = "engine.deep.er.code"
    copy = edited_release.site(tmp_path, "engine", root, lambda read: {name: read(name) + "more = 1\n"})
    assert (copy / "engine/deep/er/code.py").read_text() == "name = 'deep/er/code.py'\nmore = 1\n"
    assert (root / "deep/er/code.py").read_text() == "name = 'deep/er/code.py'\n", "the release itself is never written"
    assert (copy / "engine/deep/other.py").read_text() == (root / "deep/other.py").read_text()
    assert (copy / "engine-1.0.dist-info").is_dir()


def test_an_edited_copy_has_bytecode_and_writes_none_into_the_release(tmp_path):
    """Else every copy would compile the engine's files anew, or leave its own code for the release to run."""
    root = tmp_path / "release" / "engine"
    root.mkdir(parents=True)
    for name in ("__init__", "code", "other"):
        (root / f"{name}.py").write_text("value = 'old'\n")

    def printed(site, module, *flags):
        look = f"import engine.{module} as m, os; print(m.value, os.stat(m.__cached__).st_mtime_ns)"
        command = [sys.executable, *flags, "-c", look]
        return subprocess.run(command, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True).stdout.split()

    before = {module: printed(root.parent, module) for module in ("code", "other")}
    copy = edited_release.site(
        tmp_path, "engine", root, lambda read: {"engine.code": read("engine.code").replace("old", "new")}
    )
    assert printed(copy, "other")[0] == "old" and printed(copy, "code")[0] == "new"
    assert (copy / "engine/__pycache__").is_dir() and not (copy / "engine/__pycache__").is_symlink()
    assert {module: printed(root.parent, module) for module in before} == before
