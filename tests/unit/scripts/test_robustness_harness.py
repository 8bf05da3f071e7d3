"""The harness of the parts faults, threads_and_forks and other_patchers: that it sees what is wrong."""

from __future__ import annotations

import children
import faults_run
import other_patchers_run
import pytest
from small_engine import Seen

STOCK, ARMED = (2, 2, "base", 2, False), (107, 107, "base and ours", 1002, True)
SECOND_ALONE = (7, 7, "base", 2, False)


@pytest.mark.parametrize("seen, half, armed", [(STOCK, False, False), (ARMED, False, True), (SECOND_ALONE, False, False)])
def test_stock_and_armed_are_whole(seen, half, armed):
    assert (Seen(*seen).half, Seen(*seen).armed) == (half, armed)


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("one, other", [(STOCK, ARMED), (ARMED, STOCK)])
def test_one_target_that_differs_is_half(one, other, place):
    assert Seen(*(b if at == place else a for at, (a, b) in enumerate(zip(one, other)))).half


WELL = {"ended": 0, "error": None, "half": False, "armed": False, "interrupted": False, "seen": [], "lines": []}


@pytest.mark.parametrize(
    "kind, strict, told, wrong",
    [
        ("exception", False, {}, None),
        ("exception", False, {"half": True}, "half"),
        ("exception", False, {"error": "ImportError: injected"}, "raised"),
        ("exception", False, {"ended": children.TOO_LONG}, "in time"),
        ("exception", True, {}, "without a required fix"),
        ("exception", True, {"armed": True}, None),
        ("exception", True, {"ended": 78, "lines": ["attnfix: refusing to serve, x"]}, None),
        ("exception", True, {"ended": 78}, "0 lines"),
        ("KeyboardInterrupt", False, {"interrupted": True}, None),
        ("exception", False, {"interrupted": True}, "nobody sent"),
        ("killed", False, {"ended": -9}, None),
        ("killed", False, {"ended": 1}, "ended with 1"),
    ],
)
def test_what_counts_as_wrong(kind, strict, told, wrong):
    found = faults_run.wrong(kind, strict, {**WELL, **told})
    assert (found is None) is (wrong is None) and (wrong or "") in (found or "")


@pytest.mark.parametrize(
    "order, keeps, seen, right",
    [
        ("after attnfix", False, (10_002, 10_002, "base", 2, False), True),
        ("after attnfix", False, (10_107, 10_107, "base and ours", 1002, True), False),
        ("after attnfix", True, (10_107, 10_107, "base and ours", 1002, True), True),
        ("after attnfix", True, (10_214, 10_214, "base and ours", 1002, True), False),
        ("before attnfix", True, (10_107, 10_107, "base and ours", 1002, True), False),
        ("before attnfix", False, STOCK, False),  # theirs is lost
    ],
)
def test_what_counts_as_wrong_beside_another_patcher(order, keeps, seen, right):
    case = other_patchers_run.Case("x", other_patchers_run.FORWARD, lambda target: None, keeps=keeps)
    told = {"ended": 0, "seen": list(seen), "rows": {"sglang.small-fix": ["conflict", ""]}}
    assert (other_patchers_run.wrong(case, order, told) is None) is right
