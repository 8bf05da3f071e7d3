"""A fix counts nothing and changes no bit where its condition does not hold: drawn configurations, and named deployments.

`SPARED=500 python -m pytest -s tests/integration/test_spared.py` runs so many of each family, spread evenly over the releases
of `SEEDS` that have it, and says what ran. A seeded few run by default.
"""

from __future__ import annotations

import os
from itertools import islice

import pytest

from attnfix.patches.catalogue import BY_ID
from tests.differential import run, spared
from tests.fixes.rows import DEPLOYMENTS

COUNT = int(os.environ.get("SPARED", 0))
#: A seed for each release, so that no two draw the same; the first of an engine is what runs by default
SEEDS = {
    ("sglang", "0.5.16"): 1,
    ("sglang", "0.5.12.post1"): 2,
    ("sglang", "0.5.23"): 3,
    ("vllm", "0.27.1"): 1,
    ("vllm", "0.24.0"): 2,
    ("vllm", "0.33.0"): 3,
}
RELEASES = [key for key, seed in SEEDS.items() if COUNT or seed == 1]


@pytest.fixture(scope="module", params=RELEASES, ids=" ".join)
def sides(request):
    with run.Sides(*request.param, all_fixes=True) as both:
        yield both


def each(engine, family):
    """How many configurations of a family run on each release that has it."""
    return -(-COUNT // sum(family in spared.families(*key) for key in SEEDS if key[0] == engine)) or 1


def test_drawn_configurations(sides):
    wrong = {}
    for family in spared.families(sides.engine, sides.release):
        cases = spared.drawn(sides.engine, sides.release, family, seed=SEEDS[sides.engine, sides.release])
        found = spared.tally(sides, cases, count := each(sides.engine, family))
        called = ", ".join(f"{fix} {found.called[fix]} of {many}" for fix, many in found.spared.most_common())
        print(f"\n{sides.engine} {sides.release}, {family}: {found.configurations} ran, harms {found.harms}, called: {called}")
        if found.harms or found.configurations != count or not any(found.called[fix] for fix in found.spared):
            wrong[family] = found
    assert not wrong


def test_deployments_that_are_named_as_spared(sides):
    cases = spared.named(sides.engine, sides.release, DEPLOYMENTS, seed=1)
    found = spared.Tally()
    for case, _ in cases if COUNT else islice(cases, 2):
        found.take(sides, case)
    assert found.harms == [] and found.configurations
    assert set(found.called) <= set(BY_ID)


@pytest.mark.parametrize("sabotage", ["corrections count anywhere", "corrections spoil anywhere"])
def test_corrections_beyond_their_condition_are_seen(sides, sabotage):
    family = {"sglang": "paged", "vllm": "flashinfer"}[sides.engine]
    cases = spared.drawn(sides.engine, sides.release, family, seed=1)
    assert spared.tally(sides, cases, 4, sabotage=sabotage).harms  # not each of them calls what a fix wraps
