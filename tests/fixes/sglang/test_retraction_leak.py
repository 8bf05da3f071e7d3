"""sglang.retraction-leak without an engine: which slots become free with the result of a step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.retraction_leak.fix import FIX
from tests.support import one_call


def request(tokens, retracted=True, ended=False):
    """Of so many tokens before the one that is in flight."""
    return SimpleNamespace(
        origin_input_ids=[1] * (tokens - 1), output_ids=[1, 1], is_retracted=retracted, finished=lambda: ended
    )  # fmt: skip


def freed(target, requests, slots, page=1, overlap=True, drafts=False, decoding=None):
    pool: list[int] = []
    scheduler = SimpleNamespace(
        enable_overlap=overlap, page_size=page, token_to_kv_pool_allocator=SimpleNamespace(free=pool.extend)
    )
    algorithm = SimpleNamespace(is_none=lambda: not drafts)
    batch = SimpleNamespace(reqs=requests, out_cache_loc=slots, spec_algorithm=algorithm, decoding_reqs=decoding)
    state = FixState(FIX)
    one_call.run(one_call.target_of(FIX, target), lambda self, batch, result: None, state, scheduler, batch, "result")
    assert state.counters.corrections == len(pool)
    return pool


DECODE, PREFILL = "process_batch_result_decode", "process_batch_result_prefill"
RUNS, ENDED = request(8, retracted=False), request(8, ended=True)


@pytest.mark.parametrize("requests, page, slots", [
    ([request(8), RUNS, request(9)], 1, [5, 7]),
    ([request(8), RUNS, request(9)], 4, [5]),
    ([RUNS, RUNS, ENDED], 1, []),
])  # fmt: skip
def test_a_token_in_flight_gives_up_the_page_that_it_has_begun(requests, page, slots):
    assert freed(DECODE, requests, [5, 6, 7], page) == slots


@pytest.mark.parametrize("given", [{"overlap": False}, {"drafts": True}])
def test_a_step_at_a_time_and_drafts_are_left_alone(given):
    assert freed(DECODE, [request(8)], [5], **given) == []


def test_in_a_batch_of_prompts_those_that_decode_have_one_token_each():
    prompt, decodes = request(8), request(8)
    assert freed(PREFILL, [prompt, RUNS, decodes], [1, 2, 3, 4, 5], decoding=[RUNS, decodes]) == [5]
    assert freed(PREFILL, [prompt], [1, 2, 3]) == []
