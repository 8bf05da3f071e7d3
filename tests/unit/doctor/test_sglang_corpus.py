"""The doctor against what sglang's own code chooses for deployments that people run (scripts/doctor_corpus/sglang.py)."""

from __future__ import annotations

import json
from collections import Counter
from typing import NamedTuple

import pytest
import tomllib

from attnfix.compat.doctor import diagnosis
from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE, Facts
from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES, facts_of_fixes
from scripts.doctor_corpus.sglang import CORPUS, Case, cases

LABELS = json.loads((CORPUS / "sglang.json").read_text())
CORPUS_OF = tomllib.loads((CORPUS / "sglang.toml").read_text())
#: Facts of which the engine tells what came of what the launch asks for, and the doctor what it asks for
_ASKED = {"page size", "tokens of a page"}


class Labelled(NamedTuple):
    release: str
    case: Case
    row: dict
    facts: Facts


@pytest.fixture(scope="module")
def labelled():
    found = []
    for release, rows in LABELS.items():
        for row in rows:
            if "facts" in row:
                case = Case(*row["case"])
                facts = diagnosis.facts(case.deployment(release), facts_of_fixes("sglang"))
                found.append(Labelled(release, case, row, facts))
    return found


@pytest.fixture(scope="module")
def answers(labelled):
    """(where, fix, answer, whether the engine's facts make it a hit) of each case and fix."""
    fixes = [fix for fix in FIXES if fix.engine == "sglang"]
    codes = {(fix.id, release): ledger.load(fix).verdict(release) for fix in fixes for release in LABELS}
    return [
        (
            (one.release, *one.case),
            fix.id,
            diagnosis.answer(fix, codes[fix.id, one.release], "", one.facts),
            fix.id in one.row["hits"],
        )
        for one in labelled
        for fix in fixes
    ]


def test_every_case_is_labelled_in_every_release():
    assert list(LABELS) == CORPUS_OF["releases"]
    for rows in LABELS.values():
        assert [Case(*row["case"]) for row in rows] == list(cases(CORPUS_OF["launches"]))
    refused = sum("refused" in row for rows in LABELS.values() for row in rows)
    assert refused <= 0.02 * sum(map(len, LABELS.values()))


def test_no_false_hit_and_no_false_clear(answers):
    assert any(hit for *_, hit in answers)
    assert not [(where, fix, found) for where, fix, found, hit in answers if found.verdict == (NOT_HIT if hit else HIT)]


def test_few_answers_are_possible_and_each_names_what_to_give(answers):
    found = [(where, fix, answer) for where, fix, answer, _ in answers if answer.verdict == POSSIBLE]
    assert len(found) <= 0.01 * len(answers), Counter(fix for _, fix, _ in found)
    assert all(any("(" in reason for reason in answer.reasons) for *_, answer in found)


def test_a_fact_that_the_doctor_knows_is_the_engines(labelled):
    wrong = [
        (one.release, *one.case, name, value, one.facts(name))
        for one in labelled
        for name, value in one.row["facts"].items()
        if name not in _ASKED and one.facts(name).values and value not in one.facts(name).values
    ]
    assert not wrong


def test_most_labels_are_the_engines_own():
    rows = [row for rows in LABELS.values() for row in rows if "facts" in row]
    fixes = sum(fix.engine == "sglang" for fix in FIXES)
    assert sum(len(row["by_hand"]) for row in rows) <= 0.2 * fixes * len(rows)
