"""Known bugs as data: form, words, spans, evidence. `python -m scripts.known_bugs` holds them against the releases' code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.version import Version

from attnfix.cli import releases
from attnfix.compat.doctor import diagnosis
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.fix import CRASH, SLOWER, WRONG_OUTPUT
from attnfix.compat.symptoms import SYMPTOMS
from attnfix.patches.catalogue import BY_ID, facts_of_fixes, known_bugs

ROOT = Path(__file__).resolve().parents[3]
BUGS = [bug for engine in ("sglang", "vllm") for bug in known_bugs(engine)]

pytestmark = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)


def test_a_bug_is_a_file_of_25_lines_or_less(bug):
    file = ROOT / "patches" / f"{bug.package.replace('.', '/')}.py"
    lines = file.read_text().split("BUG = KnownBug(")[1].splitlines()
    assert len(lines) <= 25 and bug.id.partition(".")[0] == file.parts[-3] and bug.id not in BY_ID


def test_words_are_short_and_say_what_avoids_it(bug):
    assert bug.harm in (WRONG_OUTPUT, CRASH, SLOWER) and bug.symptoms and set(bug.symptoms) <= set(SYMPTOMS)
    assert len(bug.title) <= 100 and not bug.title.endswith(".")
    for text in (bug.symptom, bug.avoid):
        assert text.endswith(".") and all(len(sentence.split()) <= 25 for sentence in re.split(r"(?<=[.;:]) ", text)), text
    assert bug.upstream.links or bug.fixed_in, "one that upstream has not mended needs a thread or a report"


def test_spans_name_releases_and_an_end(bug):
    known = [Version(release) for release in releases.of(bug.engine)]
    assert (bug.fixed_in is None) != (bug.read_to is None), "the last span ends in <X (mended) or <=X (newest one read)"
    assert Version(bug.fixed_in or bug.read_to) in known
    assert bug.affected(releases.of(bug.engine)) and bug.in_release(Version("99.0")) is (None if bug.read_to else False)


def test_what_ran_has_a_script(bug):
    script = ROOT / "tests" / "known" / f"{bug.package.replace('.known.', '/')}.py"
    assert script.exists() == bool(bug.ran) and set(bug.ran) <= set(bug.affected(releases.of(bug.engine)))


def test_its_condition_asks_for_facts_that_are_made(bug):
    facts = diagnosis.facts(Deployment(bug.engine, release=Version(releases.of(bug.engine)[-1])), facts_of_fixes(bug.engine))
    assert all(facts(name) for name in bug.hits.names)
