"""sglang.draft-kv-wall without an engine: how wide a branch's part of a row gets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.draft_kv_wall.fix import FIX
from tests.support import one_call

INIT = one_call.target_of(FIX, "__init__")


class Backend:
    def __init__(self, model_runner, topk, speculative_num_steps):
        self.max_context_len = model_runner.context
        self.topk, self.speculative_num_steps = topk, speculative_num_steps


def made(requests=9, slots=82, context=72, topk=4):
    table = SimpleNamespace(req_to_token=SimpleNamespace(shape=(requests, slots)))
    backend, state = object.__new__(Backend), FixState(FIX)
    one_call.run(INIT, Backend.__init__, state, backend, SimpleNamespace(context=context, req_to_token_pool=table), topk, 6)
    return backend.max_context_len, state.counters.corrections


def test_a_branch_has_room_for_all_slots_of_a_request_and_a_token_of_each_step():
    assert made() == (88, 1)


@pytest.mark.parametrize("slots, context", [(60, 72), (66, 72)])
def test_nothing_gets_narrower(slots, context):
    assert made(slots=slots, context=context) == (context, 0)


def test_where_offsets_would_be_out_of_reach_the_engine_keeps_its_width():
    """2**9 requests of 2**18 tokens in 2**4 branches are 2**31 indices: the engine itself refuses these."""
    context = 2**18 - 8
    assert made(2**9, context + 10, context, 2**4) == (context, 0)
    assert made(2**9 - 1, context + 10, context, 2**4) == (context + 16, 1)


def test_an_error_of_the_engine_passes():
    with pytest.raises(AttributeError, match="context"):
        one_call.run(INIT, Backend.__init__, FixState(FIX), object.__new__(Backend), object(), 4, 6)
