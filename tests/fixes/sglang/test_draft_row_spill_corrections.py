"""sglang.draft-row-spill without an engine: how much wider rows get."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.draft_row_spill import wrap
from attnfix.patches.sglang.draft_row_spill.fix import FIX
from tests.support import one_call

WIDTH = one_call.target_of(FIX, "get_req_to_token_extra_context_len")


@pytest.fixture(autouse=True)
def release(monkeypatch):
    """One whose EAGLE claims no slot ahead of its step's result."""
    monkeypatch.setattr(wrap, "find_spec", lambda name: None)


def width(reserve: int, extra: int, **arguments) -> tuple[int, int]:
    """What the engine's function returns, and how often it was corrected."""
    old = "def function(server_args): return extra"
    new = "def function(): return extra"
    names = {"extra": extra, "get_alloc_reserve_per_decode": lambda *_: reserve}
    exec(old if arguments else new, names)
    function, state = names["function"], FixState(FIX)
    assert isinstance(function, FunctionType)
    served = {"speculative_algorithm": "EAGLE", "disable_overlap_schedule": False, **arguments}
    given = [SimpleNamespace(**served)] if arguments else []
    return one_call.run(WIDTH, function, state, *given), state.counters.corrections


def test_a_row_holds_two_steps():
    assert width(reserve=40, extra=12) == (40, 1)
    assert width(reserve=40, extra=12, page_size=1) == (40, 1)


def test_the_end_of_a_page_is_the_engines_to_reckon_with():
    """Before it does, no step gives slots up to there."""
    assert width(reserve=40, extra=12, page_size=16) == (40, 1)
    assert width(reserve=8, extra=8, page_size=64) == (8, 0)


@pytest.mark.parametrize("reserve, found", [(16, (12, 0)), (17, (17, 1))])
def test_room_that_no_request_comes_to_is_left_alone(reserve, found):
    """A request ends 4 tokens before the context length."""
    assert width(reserve=reserve, extra=12) == found
    assert width(reserve=reserve, extra=12, page_size=1) == found


@pytest.mark.parametrize("overlap, found", [(True, (16, 1)), (False, (12, 0))])
def test_a_slot_that_a_step_claims_before_its_result_is_one_more(monkeypatch, overlap, found):
    monkeypatch.setattr(wrap, "find_spec", lambda name: name == "sglang.srt.speculative.eagle_info_v2")
    assert width(reserve=16, extra=12, disable_overlap_schedule=not overlap) == found
    assert width(reserve=16, extra=12) == (12, 0), "a later release, whose function takes no arguments"


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
