"""vllm.swa-early-free without an engine: by which count each kind of layer frees blocks of 16."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.swa_early_free.fix import FIX
from tests.support import one_call

ALLOCATE = one_call.target_of(FIX, "allocate_slots")
KINDS = {"sliding_window": lambda n: n - 31, "attention_chunk_size": lambda n: n // 32 * 32, "rswa_window": lambda n: 0,
         "mamba_state": lambda n: n - 1, "full": lambda n: 0}  # fmt: skip


class Manager:
    block_size = 16

    def __init__(self, kind):
        setattr(self, kind, 32)
        self.get_num_skipped_tokens, self.freed_by, self.req_to_blocks = KINDS[kind], [], {"a": [1], "waits": []}

    def remove_skipped_blocks(self, request_id, total_computed_tokens, num_prompt_tokens=None):
        self.freed_by.append((total_computed_tokens, num_prompt_tokens))


def allocated(computed, ahead, kinds=tuple(KINDS), fails=False):
    """({kind: the count by which blocks were freed}, corrections)"""
    managers = {kind: Manager(kind) for kind in kinds}

    def allocate_slots(self, request, num_new_tokens):
        for manager in managers.values():
            manager.remove_skipped_blocks("a", computed, 10)
        if fails:
            raise ValueError
        return "blocks"

    request = SimpleNamespace(num_computed_tokens=computed, num_output_placeholders=ahead, num_prompt_tokens=10)
    cache = SimpleNamespace(coordinator=SimpleNamespace(single_type_managers=tuple(managers.values())))
    state = FixState(FIX)
    if fails:
        with pytest.raises(ValueError):
            one_call.run(ALLOCATE, allocate_slots, state, cache, request, 4)
    else:
        assert one_call.run(ALLOCATE, allocate_slots, state, cache, request, 4) == "blocks"
    assert not any("remove_skipped_blocks" in vars(manager) for manager in managers.values())
    assert all(counts == [(counts[0][0], 10)] for counts in (manager.freed_by for manager in managers.values()))
    return {kind: manager.freed_by[0][0] for kind, manager in managers.items()}, state.counters.corrections


@pytest.mark.parametrize("computed, ahead, kept, corrections", [
    (48, 4, {"sliding_window", "rswa_window"}, 1),  # 17 tokens are behind the window, 13 without those in flight
    (66, 4, {"sliding_window", "attention_chunk_size", "rswa_window"}, 1),
    (63, 4, {"sliding_window"}, 1),
    (70, 4, set(), 0),  # no block ends between the counts
    (48, 1, set(), 0),  # a step without drafts
    (48, 0, set(), 0),
    (2, 4, set(), 0),
])  # fmt: skip
def test_windows_alone_free_by_the_lower_count(computed, ahead, kept, corrections):
    counts = {kind: computed - ahead if kind in kept else computed for kind in KINDS}
    assert allocated(computed, ahead) == (counts, corrections)


def test_an_error_of_the_engine_leaves_nothing_behind():
    assert allocated(48, 4, fails=True)[0]["sliding_window"] == 44


#: used: how many blocks are, of which one is the null block and one is the request's
@pytest.mark.parametrize("others, used, result, counts", [
    ({"b": [SimpleNamespace(block_id=2)]}, 3, None, [44]), ({}, 2, "blocks", [44, 48]), ({}, 3, None, [44]),
])  # fmt: skip
def test_a_request_that_alone_has_blocks_does_not_wait_for_itself(others, used, result, counts):
    manager = Manager("sliding_window")
    manager.req_to_blocks.update({"a": [SimpleNamespace(block_id=1)]} | others)

    def allocate_slots(self, request, num_new_tokens):
        manager.remove_skipped_blocks("a", 48, 10)
        return "blocks" if manager.freed_by[-1][0] == 48 else None

    request = SimpleNamespace(num_computed_tokens=48, num_output_placeholders=4, num_prompt_tokens=10)
    pool = SimpleNamespace(num_gpu_blocks=8, null_block=SimpleNamespace(block_id=0), get_num_free_blocks=lambda: 8 - used)
    cache = SimpleNamespace(coordinator=SimpleNamespace(single_type_managers=(manager,)), block_pool=pool)
    state = FixState(FIX)
    assert one_call.run(ALLOCATE, allocate_slots, state, cache, request, 4) == result
    assert [count for count, _ in manager.freed_by] == counts and state.counters.corrections == (result is None)
