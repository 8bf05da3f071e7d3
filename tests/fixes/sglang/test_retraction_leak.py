"""sglang.retraction-leak without an engine: which slots become free as a request is taken back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.retraction_leak.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "release_req")


def freed(known, written, page=1, overlap=True, drafts=False, ended=False):
    """Slots that become free behind the engine's, of a request of two prompt tokens."""
    pool: list[int] = []
    request = SimpleNamespace(
        origin_input_ids=[1, 1], output_ids=[1] * (known - 1), req_pool_idx=1, finished=lambda: ended
    )  # fmt: skip
    other = SimpleNamespace(req_pool_idx=0)
    batch = SimpleNamespace(
        enable_overlap=overlap, spec_algorithm=SimpleNamespace(is_none=lambda: not drafts), reqs=[other, request],
        seq_lens_cpu=torch.tensor([99, written]), req_to_token_pool=SimpleNamespace(req_to_token=torch.arange(64).view(2, 32)),
        token_to_kv_pool_allocator=SimpleNamespace(free=lambda slots: pool.extend(slots.tolist()), page_size=page),
    )  # fmt: skip

    def release_req(self, idx, remaing_req_count, server_args):
        self.reqs[idx].req_pool_idx = None  # as the engine does

    state = FixState(FIX)
    one_call.run(TARGET, release_req, state, batch, 1, 1, None)
    assert state.counters.corrections == bool(pool)
    return pool


@pytest.mark.parametrize("known, written, page, slots", [
    (8, 9, 1, [32 + 8]),
    (8, 8, 1, []),
    (8, 9, 4, [32 + 8]),
    (9, 10, 4, []),
    (11, 12, 4, []),
])  # fmt: skip
def test_a_token_in_flight_gives_up_the_page_that_it_has_begun(known, written, page, slots):
    assert freed(known, written, page) == slots


def test_a_prompt_in_flight_has_no_token_more():
    assert freed(1, 2) == []


@pytest.mark.parametrize("given", [{"overlap": False}, {"drafts": True}, {"ended": True}])
def test_a_step_at_a_time_drafts_and_ended_requests_are_left_alone(given):
    assert freed(8, 9, **given) == []
