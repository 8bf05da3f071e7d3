"""sglang.draft-kv-context-limit without an engine: how wide a branch's part of a row gets, on each of its backends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.draft_kv_context_limit.fix import FIX
from tests.support import one_call

INIT = one_call.target_of(FIX, "__init__")


def test_all_backends_are_corrected_in_one_way():
    assert {(target.correct, target.needed) for target in FIX.targets} == {(INIT.correct, INIT.needed)}
    assert FIX.independent and len(FIX.targets) == 3


class Backend:
    def __init__(self, model_runner, topk, speculative_num_steps):
        self.max_context_len = model_runner.context
        self.topk, self.speculative_num_steps = topk, speculative_num_steps

    def init_forward_metadata(self, forward_batch):
        """Lists the slots of each step."""


class Plain(Backend):
    """An heir that lists them, too."""


class Planning(Backend):
    """An heir that plans its steps by itself."""

    def init_forward_metadata(self, forward_batch):
        pass


def made(requests=9, slots=82, context=72, topk=4, kind=Backend):
    table = SimpleNamespace(req_to_token=SimpleNamespace(shape=(requests, slots)))
    backend, state = object.__new__(kind), FixState(FIX)
    one_call.run(INIT, Backend.__init__, state, backend, SimpleNamespace(context=context, req_to_token_pool=table), topk, 6)
    return backend.max_context_len, state.counters.corrections


@pytest.mark.parametrize("slots, width", [(82, 96), (90, 96), (91, 112)])
def test_a_branch_has_room_for_all_slots_of_a_request_and_a_token_of_each_step_up_to_where_rows_are_aligned(slots, width):
    assert made(slots=slots) == (width, 1)


def test_an_heir_that_lists_no_slots_is_left_alone():
    assert made(kind=Plain) == (96, 1)
    assert made(kind=Planning) == (72, 0)


@pytest.mark.parametrize("slots, context", [(58, 72), (74, 80)])
def test_nothing_gets_narrower(slots, context):
    assert made(slots=slots, context=context) == (context, 0)


def test_where_offsets_would_be_out_of_reach_the_engine_keeps_its_width():
    """6 steps of 171 requests of 2**18 tokens in 4 branches are more than 2**30 indices."""
    context = 2**18 - 8
    assert made(171, context + 2, context) == (context, 0)
    assert made(170, context + 2, context) == (context + 8, 1)
