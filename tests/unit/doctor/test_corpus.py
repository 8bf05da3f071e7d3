"""The doctor against what the engines' own code chooses for deployments that people run (scripts/doctor_corpus)."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import NamedTuple

import pytest
from packaging.version import Version

from attnfix.compat.doctor import diagnosis
from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE, Answer, Facts
from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES, facts_of_fixes, known_bugs
from scripts.doctor_corpus.corpus import Case, launches, of_both, read_labels

#: Facts of which the engine tells what came of what the launch asks for, and the doctor what it asks for
_ASKED = {"page size", "tokens of a page"}
#: Fixes that the cases do not reach
_WITHOUT_A_HIT = {
    "sglang": {
        "sglang.drafter-idle-rank",
        "sglang.falcon-h1-tensor-parallel",
        "sglang.mamba-snapshot-race",
        "sglang.plan-stream-verify",
        "sglang.window-deferred-chunk",
        "sglang.eagle-swa-verify",
        "sglang.encoder-prefix-cache",
        "sglang.fa3-dp-padding",
        "sglang.fa3-mla-tree-pages",
        "sglang.fa3-scheduler-metadata",
        "sglang.fa3-swa-topk",
        "sglang.fa3-tree-sinks",
        "sglang.flashinfer-fp8-prefix",
        "sglang.flashinfer-soft-cap",
        "sglang.fused-norm-yarn",
        "sglang.gdn-page-grid",
        "sglang.gemma3-mixed-images",
        "sglang.gemma3-text-bidirectional",
        "sglang.hybrid-chunk-metadata",
        "sglang.kv-scales-file",
        "sglang.layered-eagle-last-slot",
        "sglang.lora-captured-segments",
        "sglang.lora-prefix-key",
        "sglang.mamba-float16-conv",
        "sglang.mamba2-h-grid",
        "sglang.mamba2-prefill-graph",
        "sglang.mamba2-track-tail",
        "sglang.mixed-chunk-states",
        "sglang.qwen35-mrope",
        "sglang.short-chunk-hang",
        "sglang.stale-prefill-fallback",
        "sglang.triton-draft-double-count",
        "sglang.triton-swa-deterministic",
        "sglang.triton-tree-window",
        "sglang.trtllm-mha-draft-pool",
        "sglang.trtllm-mha-kv-scales",
        "sglang.trtllm-mha-window-pages",
        "sglang.uniform-replay-stride-mla",
        "sglang.uniform-replay-stride-triton",
        "sglang.vision-idle-rank",
        "sglang.xqa-verify-mask",
        "sglang.yarn-settings",
    },
    "vllm": {
        "vllm.mrope-gptj-eager",
        "vllm.window-blocks-not-zeroed",
        "vllm.bailing-partial-rotary",
        "vllm.dcp-mamba-drafts",
        "vllm.dots-ocr-ranks",
        "vllm.dp-dummy-states",
        "vllm.draft-rotary-table",
        "vllm.lora-prefix-key",
        "vllm.mamba-chunk-blocks",
        "vllm.mamba-state-column",
        "vllm.ministral3-query-scale",
        "vllm.mixed-precision-stale-bits",
        "vllm.pooling-chunk-race",
        "vllm.rocm-mm-prefix",
        "vllm.session-stale-hash",
        "vllm.swa-early-free",
        "vllm.tower-lora-encoder-cache",
        "vllm.yarn-attention-factor",
    },
}
#: An answer names one: an option, a variable, or what is missing
_TO_GIVE = re.compile(r"--[a-z]|[A-Z]+_[A-Z_]+|needs ")
#: Answers that name nothing: the release's code was not read so far
_SILENT = {"sglang": 3, "vllm": 0}

pytestmark = pytest.mark.parametrize("engine", ["sglang", "vllm"])


class Labelled(NamedTuple):
    place: tuple[str, ...]  # release and case
    row: dict
    facts: Facts


class Answered(NamedTuple):
    place: tuple[str, ...]
    fix: str
    is_hit: bool  # by the engine's facts
    answer: Answer


@cache
def labelled(engine):
    return [
        Labelled((release, *row["case"]), row, _facts_of(engine, release, Case(*row["case"])))
        for release, rows in read_labels(engine).items()
        for row in rows
        if "facts" in row
    ]


def _facts_of(engine, release, case):
    return diagnosis.facts(case.deployment(engine, release), facts_of_fixes(engine))


@cache
def answers(engine):
    """Of each case and each fix whose bug the release's code has."""
    affected = {
        release: [fix for fix in FIXES if fix.engine == engine and ledger.load(fix).verdict(release) == ledger.AFFECTED]
        for release in launches(engine)["releases"]
    }
    return [
        Answered(one.place, fix.id, fix.id in one.row["hits"], diagnosis.answer(fix, ledger.AFFECTED, "", one.facts))
        for one in labelled(engine)
        for fix in affected[one.place[0]]
    ]


def test_every_case_is_labelled_in_every_release(engine):
    asked, labels = launches(engine), read_labels(engine)
    assert list(labels) == asked["releases"]
    for rows in labels.values():
        assert [Case(*row["case"]) for row in rows] == asked["cases"]
    refused = sum("refused" in row for rows in labels.values() for row in rows)
    assert refused <= 0.02 * sum(map(len, labels.values()))


def test_no_false_hit_and_no_false_clear(engine):
    assert any(one.is_hit for one in answers(engine))
    assert not [one for one in answers(engine) if one.answer.verdict == (NOT_HIT if one.is_hit else HIT)]


def test_known_bugs_are_named_where_their_conditions_hold_and_nowhere_else(engine):
    """By the engine's facts, and by the doctor's own."""
    found = [(one.place[0], bug, one) for one in labelled(engine) for bug in known_bugs(engine)]
    asked = [(bug, one) for release, bug, one in found if bug.in_release(Version(release))]
    wrong = [
        (one.place, bug.id, ours.verdict, theirs.verdict)
        for bug, one in asked
        for ours, theirs in [(bug.hits(one.facts), bug.hits(of_both(one.row["facts"], one.facts)))]
        if {ours.verdict, theirs.verdict} == {HIT, NOT_HIT}
    ]
    assert asked and not wrong


def test_every_fix_is_hit_by_a_case_and_missed_by_another(engine):
    asked = {one.fix for one in answers(engine)}
    assert asked - {one.fix for one in answers(engine) if one.is_hit} == _WITHOUT_A_HIT[engine]
    assert asked == {one.fix for one in answers(engine) if not one.is_hit}


def test_few_answers_are_possible_and_each_names_what_to_give(engine):
    found = [one for one in answers(engine) if one.answer.verdict == POSSIBLE]
    assert len(found) <= 0.05 * len(answers(engine)), Counter(one.fix for one in found)
    assert len([one for one in found if not any(_TO_GIVE.search(reason) for reason in one.answer.reasons)]) <= _SILENT[engine]


def test_a_fact_that_the_doctor_knows_is_the_engines(engine):
    wrong = [
        (one.place, name, value, one.facts(name))
        for one in labelled(engine)
        for name, value in one.row["facts"].items()
        if name not in _ASKED and one.facts(name).values and value not in one.facts(name).values
    ]
    assert not wrong


def test_most_labels_are_the_engines_own(engine):
    assert sum(len(one.row["by_hand"]) for one in labelled(engine)) <= 0.2 * len(answers(engine))
