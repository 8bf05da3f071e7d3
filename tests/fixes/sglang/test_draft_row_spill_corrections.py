"""sglang.draft-row-spill without an engine: how much wider rows get."""

from __future__ import annotations

import sys
from types import FunctionType, SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.draft_row_spill.fix import FIX
from tests.support import one_call

WIDTH = one_call.target_of(FIX, "get_req_to_token_extra_context_len")


def width(reserve: int, extra: int, **arguments) -> tuple[int, int]:
    """What the engine's function returns, and how often it was corrected."""
    old = "def function(server_args): return extra"
    new = "def function(): return extra"
    names = {"extra": extra, "get_alloc_reserve_per_decode": lambda *_: reserve}
    exec(old if arguments else new, names)
    function, state = names["function"], FixState(FIX)
    assert isinstance(function, FunctionType)
    served = {"speculative_algorithm": "EAGLE", "disaggregation_mode": "null", **arguments}
    given = [SimpleNamespace(**served)] if arguments else []
    return one_call.run(WIDTH, function, state, *given), state.counters.corrections


@pytest.fixture(autouse=True)
def algorithms(monkeypatch):
    """Of a release in which all take two steps ahead: a class without `supports_spec_v2`."""
    return served(monkeypatch, SimpleNamespace(from_string=lambda name: name))


def served(monkeypatch, algorithm):
    module = SimpleNamespace(SpeculativeAlgorithm=algorithm)
    monkeypatch.setitem(sys.modules, "sglang.srt.speculative.spec_info", module)


def test_a_row_holds_two_steps():
    assert width(reserve=40, extra=12) == (40, 1)
    assert width(reserve=40, extra=12, page_size=1) == (40, 1)


def test_the_end_of_a_page_is_the_engines_to_reckon_with():
    """Before it does, no step gives slots up to there."""
    assert width(reserve=40, extra=12, page_size=16) == (40, 1)
    assert width(reserve=8, extra=8, page_size=64) == (8, 0)


@pytest.mark.parametrize("reserve, found", [(15, (12, 0)), (16, (16, 0)), (17, (17, 1))])
def test_room_that_no_request_comes_to_is_left_alone(reserve, found):
    """A request ends 4 tokens before the context length; for those that may come one nearer there is room, uncounted."""
    assert width(reserve=reserve, extra=12) == found
    assert width(reserve=reserve, extra=12, page_size=1) == found


def test_a_server_that_only_prefills_has_no_decode_step(monkeypatch):
    assert width(reserve=40, extra=12, disaggregation_mode="prefill") == (12, 0)
    context = SimpleNamespace(get_disagg=lambda: SimpleNamespace(disaggregation_mode="prefill"))
    monkeypatch.setitem(sys.modules, "sglang.srt.runtime_context", context)
    assert width(reserve=40, extra=12) == (12, 0)
    context.get_disagg = lambda: SimpleNamespace(disaggregation_mode="decode")
    assert width(reserve=40, extra=12) == (40, 1)


def test_an_algorithm_that_takes_one_step_ahead_is_left_alone(monkeypatch):
    """As n-grams in 0.5.13."""

    class Algorithm(str):
        def supports_spec_v2(self):
            return self == "EAGLE"

    served(monkeypatch, SimpleNamespace(from_string=Algorithm))
    assert width(reserve=40, extra=12, speculative_algorithm="NGRAM") == (12, 0)
    assert width(reserve=40, extra=12, speculative_algorithm="EAGLE") == (40, 1)


@pytest.mark.parametrize("reserve", [2, 12])
def test_rows_that_are_wide_enough_stay(reserve):
    assert width(reserve=reserve, extra=12) == (12, 0)


def test_without_drafts_rows_stay():
    assert width(reserve=2, extra=4, page_size=16, speculative_algorithm=None) == (4, 0)


def test_an_error_of_the_engine_passes():
    def function():
        raise ValueError("the engine's")

    with pytest.raises(ValueError, match="the engine's"):
        one_call.run(WIDTH, function, FixState(FIX))
