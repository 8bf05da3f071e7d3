"""A way around a bug is what `Fix.avoid` says, changes how a proof's server is launched, and counts where stock was right."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from attnfix.cli import listing
from attnfix.cli.listing import affected_by, avoided
from attnfix.patches.catalogue import BY_ID, FIXES, ways_around
from attnfix.patches.lab.proof import Proof
from attnfix.patches.lab.sglang import paged
from attnfix.prove.runner import proof_of
from scripts.ledger import ways_around as script

AROUND = [(fix, way) for fix in FIXES for way in proof_of(fix).around]
FIX = BY_ID["sglang.encoder-decode-lengths"]
WAY = "`--disable-cuda-graph`"
RIGHT, WRONG = {"main": {"error": 0.001}, "errors": ["0.001"]}, {"main": {"error": 3.0}, "errors": ["3"]}


def asked(case):
    """What a case asks of its server, however that is launched."""
    if isinstance(case, paged.Case):
        return [replace(step, parents=(), graph=False) for step in case.steps]
    if hasattr(case, "_replace"):
        return case._replace(**dict.fromkeys({"page", "mixed"}.intersection(case._fields)))
    return case.talk if hasattr(case, "talk") else case.steps


def contained(some, others):
    return all(any(asked(one) == asked(other) for other in others) for one in some)


@pytest.mark.parametrize("fix, way", AROUND, ids=lambda value: getattr(value, "id", value))
def test_a_way_changes_the_launch_alone_and_is_what_the_fix_says(fix, way):
    proof, changes = proof_of(fix), proof_of(fix).around[way]
    assert way in fix.avoid and changes
    for name, value in changes.items():
        assert getattr(proof, name) != value, "the scenario would be the one with the bug"
    if "bug" in changes:
        assert contained(changes["bug"], proof.bug) and contained(proof.bug, changes["bug"])


def test_other_requests_are_no_way():
    bug = (paged.case(paged.verify((5, 3)), topk=2),)
    chain = paged.launched(bug, paged.CHAIN, topk=1)["bug"]
    assert contained(chain, bug) and chain[0].launch.topk == 1 and chain[0].steps[0].parents == paged.CHAIN
    assert not contained((paged.case(paged.verify((5, 4)), topk=1),), bug)


def test_the_file_has_each_way_and_releases_that_the_bug_affects():
    known = ways_around()
    assert [(BY_ID[fix], way) for fix in known for way in known[fix]] == AROUND
    for fix, ways in known.items():
        for releases in ways.values():
            affected = affected_by(BY_ID[fix])
            assert releases and releases == [release for release in affected if release in releases]


def test_a_release_counts_where_stock_was_right_and_is_taken_off_where_it_was_not():
    known = {}
    assert script.recorded(known, "0.5.9", {FIX.id: {WAY: RIGHT}}) == []
    assert script.recorded(known, "0.5.10", {FIX.id: {WAY: RIGHT}}) == []
    assert known == {FIX.id: {WAY: ["0.5.9", "0.5.10"]}}
    assert script.recorded(known, "0.5.11", {FIX.id: {WAY: {"no_such_path": "no graphs"}}}) == []
    (wrong,) = script.recorded(known, "0.5.9", {FIX.id: {WAY: WRONG}})
    assert wrong == f"0.5.9 {FIX.id} {WAY}: errors of its cases: 3" and known == {FIX.id: {WAY: ["0.5.10"]}}
    (broken,) = script.recorded(known, "0.5.10", {FIX.id: {WAY: {"error": "it broke"}}})
    assert "it broke" in broken and known == {FIX.id: {WAY: []}}


def test_a_proof_that_avoids_has_other_attributes_and_stays_itself():
    Own = type("Own", (Proof,), {"graphs": True, "around": {WAY: {"graphs": False}}})
    assert Own.avoiding(WAY)().graphs is False and Own().graphs is True


@pytest.mark.parametrize("cases, error", [((), None), ((0.001, 3.0), 3.0)])
def test_a_way_without_cases_has_not_run(cases, error):
    seen = [SimpleNamespace(error=case, bits="") for case in cases]
    answer = script._run(SimpleNamespace(prepare=lambda: None, scenario=lambda seed: iter(seen)), 0)
    assert answer == {"no_such_path": "no case is for this release"} if error is None else answer["main"]["error"] == error


def test_what_is_said_of_a_way_that_ran_and_of_one_that_did_not(monkeypatch):
    affected, several = len(affected_by(FIX)), BY_ID["sglang.fa3-context-limit"]
    monkeypatch.setattr(listing, "ways_around", lambda: {fix.id: {WAY: ["0.5.1", "0.5.2"]} for fix in (FIX, several)})
    assert avoided(FIX) == f"{FIX.avoid} Run on the CPU in 2 of {affected} affected releases: stock is right with it."
    told = (
        f"Run on the CPU, and stock is right: {WAY} (2 of {len(affected_by(several))} affected releases). The rest is read in"
    )
    assert told in avoided(several), "its clients have another way"
    monkeypatch.setattr(listing, "ways_around", lambda: {FIX.id: {WAY: []}})
    assert avoided(FIX) == f"{FIX.avoid} Read in the engine's code, not run."
    assert avoided(replace(FIX, avoid=None)) == ""
