"""vllm.draft-first-step-slots without an engine: what the cache manager is asked for, and in which steps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.draft_first_step_slots.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "schedule")


class Manager:
    """room: lookahead tokens up to which it has blocks."""

    def __init__(self, room):
        self.asked, self.room = [], room

    def allocate_slots(self, request, num_new_tokens, num_new_computed_tokens=0, num_lookahead_tokens=0):
        self.asked.append(num_lookahead_tokens)
        return None if num_lookahead_tokens > self.room else "blocks"


class Scheduler(SimpleNamespace):
    def schedule(self):
        if self.ends:
            raise RuntimeError("the engine's")
        for request, new, _ in self.running:
            self.kv_cache_manager.allocate_slots(request, new, num_lookahead_tokens=self.num_lookahead_tokens)
        for request, new, cached in (*self.waiting, *self.skipped_waiting):
            first = 0 if request.num_computed_tokens == 0 else self.num_lookahead_tokens
            if self.by_name:
                self.kv_cache_manager.allocate_slots(request, new, num_new_computed_tokens=cached, num_lookahead_tokens=first)
            else:
                self.kv_cache_manager.allocate_slots(request, new, cached, num_lookahead_tokens=first)


def row(new, cached=0, computed=0):
    return SimpleNamespace(num_computed_tokens=computed), new, cached


def schedule(
    waiting=(), running=(), skipped=(), drafts=3, eagle=True, connector=None, sizes=(16, 1 << 20), ends=False, by_name=True,
    method="eagle", room=99,
):  # fmt: skip
    """Lookahead tokens that the manager is asked for, and corrections."""
    manager, groups = Manager(room), [SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=size)) for size in sizes]
    scheduler = Scheduler(
        num_lookahead_tokens=drafts, use_eagle=eagle, connector=connector, waiting=waiting, skipped_waiting=skipped,
        running=running, kv_cache_manager=manager, kv_cache_config=SimpleNamespace(kv_cache_groups=groups), ends=ends,
        by_name=by_name, vllm_config=SimpleNamespace(speculative_config=SimpleNamespace(method=method)),
    )  # fmt: skip
    state = FixState(FIX)
    try:
        one_call.run(TARGET, Scheduler.schedule, state, scheduler)
    finally:
        assert "allocate_slots" not in vars(manager)
    return manager.asked, state.counters.corrections


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("tokens, cached", [(16, 0), (15, 0), (16, 32), (1, 15)])
def test_the_first_step_gets_blocks_of_drafts_where_they_need_one(tokens, cached, by_name):
    assert schedule([row(tokens, cached)], [row(1, computed=16)], by_name=by_name) == ([3, 2], 1)
    assert schedule((), skipped=[row(tokens, cached)], by_name=by_name) == ([2], 1)


@pytest.mark.parametrize("tokens", [1, 9, 14, 17])
def test_one_with_room_in_its_last_block_is_left_alone(tokens):
    assert schedule([row(tokens), row(16, computed=16)]) == ([0, 3], 0)


def test_a_draft_model_writes_one_token_more():
    assert schedule([row(14), row(13)], drafts=2, eagle=False) == ([0, 0], 0)
    assert schedule([row(15), row(16)], drafts=2, eagle=False) == ([2, 2], 2)
    assert schedule([row(16)], drafts=1, eagle=False) == ([1], 1)


def test_dflash_writes_the_sampled_token_and_all_drafts():
    assert schedule([row(13), row(12)], method="dflash") == ([4, 0], 1)
    assert schedule([row(16)], drafts=1, method="dflash") == ([2], 1)


def test_a_request_waits_for_blocks_of_drafts_where_others_run():
    assert schedule([row(16)], [row(1, computed=16)], room=1) == ([3, 2], 0)


def test_one_that_has_all_blocks_begins_without_those_of_drafts():
    assert schedule([row(16)], room=1) == ([2, 0], 0)


@pytest.mark.parametrize("launch", [{"drafts": 1}, {"drafts": 0}, {"drafts": 0, "eagle": False}, {"connector": "any"}])
def test_servers_that_need_none_and_those_with_a_connector_are_left_alone(launch):
    assert schedule([row(16)], **launch) == ([0], 0)


def test_groups_of_other_sizes_count_too():
    assert schedule([row(32)], sizes=(64, 32)) == ([2], 1)
    assert schedule([row(16)], sizes=(64, 32)) == ([0], 0)


def test_an_error_of_the_engine_passes():
    with pytest.raises(RuntimeError, match="the engine's"):
        schedule([row(16)], ends=True)
