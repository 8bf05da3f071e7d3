"""The doctor over launch lines that people run, against what vLLM itself chooses there (`scripts.doctor_corpus.vllm`)."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from attnfix.compat.doctor import diagnosis
from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES, facts_of_fixes
from scripts.doctor_corpus import vllm

#: (release, case) of every line with which a server starts
STARTED = [(release, case) for release, cases in vllm.read_labels().items() for case in cases if "facts" in case]


def facts_of(release, case):
    deployment = vllm.deployment(release, case["model"], case["launch"], case["gpu"])
    return diagnosis.facts(deployment, facts_of_fixes("vllm"))


@cache
def answers():
    """[(place, fix, whether the engine's facts make it a hit, answer)] for every fix whose bug the release's code has."""
    found = []
    for release, case in STARTED:
        facts = facts_of(release, case)
        for fix in FIXES:
            if fix.engine == "vllm" and (code := ledger.load(fix).verdict(release)) == ledger.AFFECTED:
                place = release, case["gpu"], case["model"], case["launch"]
                found.append((place, fix.id, fix.id in case["hits"], diagnosis.answer(fix, code, release, facts)))
    return found


@pytest.mark.parametrize("is_hit, verdict", [(False, HIT), (True, NOT_HIT)], ids=["false hits", "false clears"])
def test_no_answer_is_wrong(is_hit, verdict):
    wrong = [
        (*place, fix, answer.reasons) for place, fix, hit, answer in answers() if hit == is_hit and answer.verdict == verdict
    ]
    assert wrong == []


def test_few_answers_are_open_and_each_says_what_would_settle_it():
    open_answers = [(place, fix, answer) for place, fix, _, answer in answers() if answer.verdict == POSSIBLE]
    assert len(open_answers) <= 0.05 * len(answers()), Counter(fix for _, fix, _ in open_answers)
    silent = [row for row in open_answers if not any("--" in why or "VLLM_" in why for why in row[2].reasons)]
    assert silent == []


def test_no_fact_contradicts_the_engine():
    wrong = []
    for release, case in STARTED:
        facts = facts_of(release, case)
        for name, value in case["facts"].items():
            if (values := facts(name).values) and value not in values:
                wrong.append((release, case["gpu"], case["model"], case["launch"], name, value, values))
    assert wrong == []


def test_few_labels_are_by_hand():
    """The doctor's own facts decide at most a fifth of them."""
    by_hand = sum(bool(case["by_hand"]) for _, case in STARTED)
    assert len(STARTED) > 0 and by_hand <= len(STARTED) / 5
