"""Releases: equal builds, notes, and what is told of an engine's new releases."""

from __future__ import annotations

import subprocess
import sys

import pytest

from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES
from scripts.release import new_releases, notes

CHANGELOG = """# Changelog

## 1.1.0 (unreleased)

Later.

## 1.0.0 (2027-01-31)

The first.

<!-- generated: changelog_fixes -->
- `vllm.x`: X.
<!-- end -->

## 0.9.0 (2026-12-01)

Before.
"""


def test_notes_are_one_section_without_its_marks():
    assert notes.section(CHANGELOG, "1.0.0") == "The first.\n\n- `vllm.x`: X.\n"
    assert notes.section(CHANGELOG, "0.9.0") == "Before.\n"


@pytest.mark.parametrize("version", ["1.1.0", "1.0", "2.0.0"])
def test_a_release_without_a_dated_section_has_no_notes(version):
    with pytest.raises(ValueError, match=version):
        notes.section(CHANGELOG, version)


def test_a_tag_that_is_not_the_version_is_refused():
    done = subprocess.run([sys.executable, "-m", "scripts.release.notes", "v0.0.1"], capture_output=True, text=True)
    assert done.returncode == 1 and "v0.0.1" in done.stderr and done.stdout == ""


VLLM = [fix.id for fix in FIXES if fix.engine == "vllm"][:2]
SGLANG = next(fix.id for fix in FIXES if fix.engine == "sglang")
BEFORE = {VLLM[0]: {"0.33.0": ledger.AFFECTED}, VLLM[1]: {"0.33.0": ledger.FIXED}, SGLANG: {"0.5.23": ledger.FIXED}}


def test_new_releases_are_those_that_no_ledger_of_the_engine_had():
    more = {"0.9.0": ledger.FIXED, "0.33.0": ledger.AFFECTED, "0.34.0": ledger.AFFECTED, "0.33.1": ledger.FIXED}
    now = BEFORE | {VLLM[0]: more, VLLM[1]: BEFORE[VLLM[1]] | {"0.34.0": ledger.FIXED}, "sglang.another": {}}
    changed = new_releases.new(BEFORE, {fix: now[fix] for fix in BEFORE})
    assert list(changed) == [("vllm", "0.9.0"), ("vllm", "0.33.1"), ("vllm", "0.34.0")]
    assert changed["vllm", "0.34.0"] == {VLLM[0]: ledger.AFFECTED, VLLM[1]: ledger.FIXED}
    assert new_releases.new(BEFORE, BEFORE) == {}


def test_a_fix_that_is_new_makes_no_release_new():
    assert new_releases.new({VLLM[0]: BEFORE[VLLM[0]], VLLM[1]: {}}, {VLLM[0]: {}, VLLM[1]: BEFORE[VLLM[1]]}) == {}
