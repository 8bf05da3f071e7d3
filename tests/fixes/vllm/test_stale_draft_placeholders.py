"""vllm.stale-draft-placeholders without an engine: which requests give their placeholders up, and which keep them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.stale_draft_placeholders.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "_update_after_schedule")
KEPT, SAMPLED = [-1, -1], [-1, -1, -1]


def update_after_schedule(self, scheduler_output):
    for name in scheduler_output.num_scheduled_tokens:
        if not self.requests[name].prompt_goes_on:
            self.requests[name].spec_token_ids = SAMPLED


def request(name, known=9, in_flight=3, placeholders=KEPT, prompt_goes_on=False):
    return SimpleNamespace(
        request_id=name, spec_token_ids=placeholders, num_tokens=known, num_output_placeholders=in_flight, num_prompt_tokens=4,
        max_tokens=20, num_computed_tokens=7 if prompt_goes_on else 8, prompt_goes_on=prompt_goes_on,
    )  # fmt: skip


def step(running, scheduled, resumed=(), tensor=1, pipeline=1, hybrid=False, v2=False, drafts=2, longest=100):
    """(placeholders of each request behind a step, corrections, requests that they were for)"""
    parallel = SimpleNamespace(tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)
    scheduler = SimpleNamespace(
        num_spec_tokens=drafts, use_v2_model_runner=v2, max_model_len=longest, running=running,
        requests={each.request_id: each for each in running},
        vllm_config=SimpleNamespace(parallel_config=parallel, model_config=SimpleNamespace(is_hybrid=hybrid)),
    )  # fmt: skip
    cached = SimpleNamespace(resumed_req_ids=set(resumed))
    output = SimpleNamespace(num_scheduled_tokens=dict.fromkeys(scheduled, 1), scheduled_cached_reqs=cached)
    state = FixState(FIX)
    one_call.run(TARGET, update_after_schedule, state, scheduler, output)
    return [each.spec_token_ids for each in running], state.counters.corrections, state.counters.rows


def test_requests_that_a_step_leaves_out_give_their_placeholders_up():
    running = [request("a"), request("b"), request("c"), request("d", placeholders=[])]
    assert step(running, "b") == ([[], SAMPLED, [], []], 1, 2)
    assert KEPT == [-1, -1]  # one list is that of several requests


def test_a_resumed_request_has_none_before_its_last_chunk():
    running = [request("a", in_flight=0, prompt_goes_on=True), request("b", in_flight=0)]
    assert step(running, "ab", resumed="ab") == ([[], SAMPLED], 1, 1)


@pytest.mark.parametrize("more", [{"tensor": 2}, {"pipeline": 2}, {"hybrid": True}, {"v2": True}, {"drafts": 0}])
def test_other_servers_are_left_alone(more):
    assert step([request("a"), request("b")], "b", **more) == ([KEPT, SAMPLED], 0, 0)


@pytest.mark.parametrize("known, longest, kept", [(22, 100, False), (23, 100, True), (9, 11, False), (9, 10, True)])
def test_a_request_whose_last_token_is_in_flight_keeps_them(known, longest, kept):
    found = step([request("a", known=known), request("b")], "b", longest=longest)
    assert found == ([KEPT if kept else [], SAMPLED], int(not kept), int(not kept))


def test_a_step_of_all_is_left_alone():
    assert step([request("a"), request("b")], "ab") == ([SAMPLED, SAMPLED], 0, 0)
