"""Which releases `ledgers --check` runs again: what the committed matrix says otherwise is never left to chance."""

from __future__ import annotations

import pytest

from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import BY_ID, FIXES
from scripts.ledger import ledgers

FIX = BY_ID["sglang.zero-kv-rows"]


@pytest.fixture
def edited(monkeypatch):
    """`edited(**changes)`: the ledger of FIX with its newest code changed; the releases of that code."""
    load = ledger.load

    def edit(**changes):
        book = load(FIX)
        last = book.code[-1]
        changed = book._replace(code=(*book.code[:-1], last._replace(**changes)))
        monkeypatch.setattr(ledger, "load", lambda fix: changed if fix is FIX else load(fix))
        return {("sglang", release) for release in last.releases}

    return edit


def runs_of(fix):
    return {pair for pair, fixes in ledgers.to_be_run(FIXES).items() if fix in fixes}


@pytest.fixture(autouse=True)
def nothing_drawn(monkeypatch):
    monkeypatch.setattr(ledgers, "_DRAWN", 0)


def test_the_committed_matrix_has_run_every_code():
    assert ledgers.to_be_run(FIXES) == {}


@pytest.mark.parametrize("changes", [{"verdict": ledger.AFFECTED}, {"name": "0" * 12}])
def test_a_verdict_or_a_code_that_it_does_not_know_is_run(edited, changes):
    of_that_code = edited(**changes)
    assert len(runs_of(FIX)) == 1 and runs_of(FIX) <= of_that_code


def test_some_of_the_others_are_drawn(monkeypatch):
    monkeypatch.setattr(ledgers, "_DRAWN", 12)
    drawn = [frozenset(ledgers.to_be_run(FIXES)) for _ in range(3)]
    assert {len(pairs) for pairs in drawn} == {12} and len(set(drawn)) > 1
