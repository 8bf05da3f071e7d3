"""sglang.mamba-retraction without an engine: how a request is taken back, and what it forgets before it runs again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba_retraction import wrap
from attnfix.patches.sglang.mamba_retraction.fix import FIX
from tests.support import one_call

RELEASE, NEXT_ROUND = FIX.targets


class MambaRadixCache:
    device = "cpu"

    def __init__(self):
        self.freed, self.rows, self.unlocked = [], [], []
        self.token_to_kv_pool_allocator = SimpleNamespace(free=lambda slots: self.freed.extend(slots.tolist()))
        self.req_to_token_pool = SimpleNamespace(req_to_token=torch.arange(40).view(4, 10), free=self.rows.append)
        self.dec_lock_ref = self.unlocked.append

    def cache_finished_req(self, req):
        raise AssertionError("it is cached")


class RadixCache(MambaRadixCache):
    def cache_finished_req(self, req, is_insert=True):
        self.freed.append(is_insert)


def release_req(self, idx, remaing_req_count, server_args):
    self.tree_cache.cache_finished_req(self.reqs[idx], is_insert=False)


def request(**more):
    tokens = {"origin_input_ids": [7] * 5, "output_ids": [8] * 3, "prefix_indices": [0, 1]}
    return SimpleNamespace(**{"is_retracted": False, "req_pool_idx": 2, "last_node": "node", **tokens, **more})


def take_back(tree, req, overlap=False):
    state, batch = FixState(FIX), SimpleNamespace(tree_cache=tree, reqs=[req], enable_overlap=overlap)
    one_call.run(RELEASE, release_req, state, batch, 0, 0, None)
    return state.counters.corrections


@pytest.mark.parametrize("answer, slots", [([8] * 3, [22, 23, 24, 25, 26]), ([], [22, 23, 24]), ([8], [22, 23, 24])])
def test_all_that_a_request_holds_becomes_free(answer, slots):
    tree = MambaRadixCache()
    assert take_back(tree, request(output_ids=answer)) == 1
    assert (tree.freed, tree.rows, tree.unlocked) == (slots, [2], ["node"]) and "cache_finished_req" not in vars(tree)


def test_other_radix_caches_are_left_alone():
    tree = RadixCache()
    assert take_back(tree, request()) == 0 and tree.freed == [False]


def test_the_step_in_flight_is_waited_for(monkeypatch):
    waited = []
    monkeypatch.setattr(wrap, "wait", waited.append)
    assert take_back(MambaRadixCache(), request(), overlap=True) == 1 and waited == ["cpu"]
    wrap.wait("cpu")


@pytest.mark.parametrize("req, tree, corrections", [
    (request(is_retracted=True), MambaRadixCache(), 1),
    (request(), MambaRadixCache(), 0),
    (request(is_retracted=True, req_pool_idx=None), MambaRadixCache(), 0),
    (request(is_retracted=True), RadixCache(), 0),
    (request(is_retracted=True), None, 0),
])  # fmt: skip
def test_a_request_that_was_taken_back_forgets_its_row(req, tree, corrections):
    state, before = FixState(FIX), req.req_pool_idx
    one_call.run(NEXT_ROUND, lambda self, tree_cache=None: None, state, req, tree)
    assert state.counters.corrections == corrections and req.req_pool_idx == (None if corrections else before)
