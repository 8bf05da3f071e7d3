"""Of every fix alike: what its folder says, and whose code it uses."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import attnfix.patches
from attnfix.compat.fix import Fix
from attnfix.patches.catalogue import FIXES

ROOT = Path(attnfix.patches.__file__).parent
PACKAGES = {fix.package for fix in FIXES}
UNSAID = next(field.default for field in dataclasses.fields(Fix) if field.name == "default_reason")
RUN_TIME = [*ROOT.glob("*/*/fix.py"), *ROOT.glob("*/*/wrap.py"), *ROOT.glob("*/*/facts.py"), *ROOT.glob("*/shared/*.py")]


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
def test_a_fix_that_is_on_says_why(fix):
    assert not fix.default or fix.default_reason != UNSAID


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
def test_a_fix_names_a_thread_or_a_report(fix):
    assert fix.upstream.links


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
def test_a_symptom_can_be_read_aloud(fix):
    """Sentences of at most 25 words, each with a noun for its subject."""
    sentences = re.split(r"(?<=[.!?]) (?=[A-Z`])", fix.symptom)
    assert [each for each in (fix.title, *sentences) if len(each.split()) > 25] == []
    assert [each for each in sentences if re.match(r"(What|Who|Those|That of|It takes)\b", each)] == []


@pytest.mark.parametrize("path", RUN_TIME, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_serves_imports_from_no_other_fix(path):
    """Code that two fixes need lies in `shared`."""
    own = ".".join(path.relative_to(ROOT).parts[:2])
    named = re.findall(r"^\s*from attnfix\.patches\.(\w+\.\w+)", path.read_text(), re.M)
    named += [
        f"{engine}.{name}"
        for engine, name in re.findall(r"^\s*from attnfix\.patches\.(\w+) import (\w+)", path.read_text(), re.M)
    ]
    assert not (set(named) & PACKAGES) - {own}
