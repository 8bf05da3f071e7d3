"""A fix counts nothing and changes no bit where its condition does not hold: drawn configurations, and named deployments.

`SPARED=500 python -m pytest tests/integration/test_spared.py` runs so many of each family, on all of `ALL`. A seeded few run
by default.
"""

from __future__ import annotations

import os
from itertools import islice

import pytest

from attnfix.patches.catalogue import BY_ID
from tests.differential import run, spared
from tests.unit.doctor.hit_cases import CASES

COUNT = int(os.environ.get("SPARED", 0))
FEW = ("sglang", "0.5.16"), ("vllm", "0.27.1")
ALL = (
    ("sglang", "0.5.12.post1"),
    ("sglang", "0.5.16"),
    ("sglang", "0.5.23"),
    ("vllm", "0.24.0"),
    ("vllm", "0.27.1"),
    ("vllm", "0.33.0"),
)


@pytest.fixture(scope="module", params=ALL if COUNT else FEW, ids=" ".join)
def sides(request):
    with run.Sides(*request.param, all_fixes=True) as both:
        yield both


def test_drawn_configurations(sides):
    for family in spared.FAMILIES[sides.engine]:
        cases = spared.drawn(sides.engine, sides.release, family, seed=1)
        found = spared.tally(sides, cases, COUNT or 1)
        assert found.harms == [] and found.configurations == (COUNT or 1), family
        assert any(found.called[fix] for fix in found.spared), f"{family}: no spared fix has seen a call"


def test_deployments_that_are_named_as_spared(sides):
    cases = spared.named(sides.engine, sides.release, CASES, seed=1)
    found = spared.Tally()
    for case, _ in cases if COUNT else islice(cases, 2):
        found.take(sides, case)
    assert found.harms == [] and found.configurations
    assert set(found.called) <= set(BY_ID)


@pytest.mark.parametrize("sabotage", ["corrections count anywhere", "corrections spoil anywhere"])
def test_corrections_beyond_their_condition_are_seen(sides, sabotage):
    family = {"sglang": "paged", "vllm": "flashinfer"}[sides.engine]
    cases = spared.drawn(sides.engine, sides.release, family, seed=1)
    assert spared.tally(sides, cases, 1, sabotage=sabotage).harms
