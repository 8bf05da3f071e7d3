"""vllm.mamba-prefix-cache without an engine: where a chunk ends, and which states are looked up once more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.mamba_prefix_cache.fix import FIX
from tests.support import one_call

BLOCK = 16
SPLIT = one_call.target_of(FIX, "_mamba_block_aligned_split")
FIND = one_call.target_of(FIX, "find_longest_cache_hit")


def split_in(self, request, num_new_tokens, num_new_local_computed_tokens=0, num_external_computed_tokens=0):
    return self.say(num_new_tokens)


def split(computed, new, known, local=(), say=lambda tokens: tokens):
    """(tokens that are scheduled, corrections)"""
    state = FixState(FIX)
    state.fired = True
    scheduler = SimpleNamespace(cache_config=SimpleNamespace(block_size=BLOCK), say=say)
    request = SimpleNamespace(num_computed_tokens=computed, num_tokens=known)
    return one_call.run(SPLIT, split_in, state, scheduler, request, new, *local), state.counters.corrections


@pytest.mark.parametrize(
    "computed, new, known, scheduled",
    [(20, 30, 50, 12), (20, 13, 50, 12), (31, 20, 60, 1), (20, 30, 33, 12), (1, 99, 100, 15)],
)
def test_a_chunk_that_begins_within_a_block_ends_with_it(computed, new, known, scheduled):
    assert split(computed, new, known) == (scheduled, 1)


@pytest.mark.parametrize("computed, new, known", [(0, 50, 50), (32, 18, 50), (16, 4, 50)])
def test_a_chunk_that_begins_with_a_block_is_as_long_as_it_was(computed, new, known):
    assert split(computed, new, known) == (new, 0)


@pytest.mark.parametrize("computed, new, known", [(20, 12, 50), (20, 5, 50), (20, 8, 28), (20, 12, 32), (20, 0, 50)])
def test_a_chunk_that_stays_in_its_block_is_as_long_as_it_was(computed, new, known):
    assert split(computed, new, known) == (new, 0)


@pytest.mark.parametrize("computed, known", [(47, 48), (46, 47), (50, 48), (63, 64)])
def test_a_decode_step_takes_its_drafts_past_the_end_of_a_block(computed, known):
    assert split(computed, 5, known) == (5, 0), "with drafts, and where asynchronous scheduling is ahead of what is known"


def test_what_the_cache_has_counts_as_computed():
    assert split(0, 30, 50, local=(20, 0)) == (12, 1)
    assert split(0, 30, 50, local=(16, 4)) == (12, 1)
    assert split(0, 30, 50, local=(32, 0)) == (30, 0)


@pytest.mark.parametrize("said", [0, 5, 12])
def test_where_the_engine_stops_before_it_says_how_many(said):
    assert split(20, 30, 50, say=lambda tokens: said) == (said, 0)


class MambaSpec: ...


class FullAttentionSpec: ...


class Group(NamedTuple):  # as from 0.23.0; up to 0.22.1 a plain tuple of the first three
    spec: Any
    group_ids: list
    manager_cls: Any = None
    use_eagle: bool = True


def coordinator(states, attention, groups=True, eagle=True):
    """Of which the lookup finds so many blocks for states with a margin, at most as many as attention has without it."""
    made = [Group(FullAttentionSpec(), [1], use_eagle=eagle), Group(MambaSpec(), [0, 2], use_eagle=eagle)]
    more = {} if groups else {"eagle_attn_group_indices": {0, 1} if eagle else set()}
    return SimpleNamespace(
        attention_groups=made if groups else [tuple(group[:3]) for group in made], found=(states, attention), calls=0,
        single_type_managers=[SimpleNamespace(block_size=BLOCK)] * 3, **more,
    )  # fmt: skip


def find_in(self, block_hashes, max_cache_hit_length):
    self.calls += 1
    states, attention = self.found
    indices = getattr(self, "eagle_attn_group_indices", None)
    margin = 1 in indices if indices is not None else self.attention_groups[1].use_eagle
    hit = states if margin else min(states, attention)
    return (["s"] * hit, ["a"] * min(hit, attention), ["s"] * hit), hit * BLOCK


def find(instance):
    state = FixState(FIX)
    state.fired = True
    before = dict(vars(instance), attention_groups=list(instance.attention_groups))
    (states, attention, _), tokens = one_call.run(FIND, find_in, state, instance, [], 1000)
    assert {**vars(instance), "calls": 0} == before, "what was changed for the lookup is as it was"
    return len(states), len(attention), tokens // BLOCK, state.counters.corrections


@pytest.mark.parametrize("groups", [True, False], ids=["0.23.0", "0.20.0"])
def test_states_past_attention_are_looked_up_once_more(groups):
    instance = coordinator(states=6, attention=5, groups=groups)
    assert find(instance) == (5, 5, 5, 1)
    assert instance.calls == 2


@pytest.mark.parametrize("groups", [True, False], ids=["0.23.0", "0.20.0"])
@pytest.mark.parametrize("states, attention", [(5, 5), (0, 0), (3, 5)])
def test_a_prefix_that_attention_holds_is_taken_as_it_is(groups, states, attention):
    instance = coordinator(states, attention, groups)
    assert find(instance) == (states, states, states, 0)
    assert instance.calls == 1


@pytest.mark.parametrize("groups", [True, False], ids=["0.23.0", "0.20.0"])
def test_without_drafts_nothing_is_looked_at(groups):
    assert find(coordinator(6, 5, groups, eagle=False)) == (5, 5, 5, 0)


def test_groups_of_releases_that_know_no_margin_are_left_alone():
    instance = coordinator(6, 5)
    instance.attention_groups = [tuple(group[:3]) for group in instance.attention_groups]
    state = FixState(FIX)
    one_call.run(FIND, lambda self, block_hashes, max_cache_hit_length: ((["s"], [], ["s"]), BLOCK), state, instance, [], 1000)
    assert state.counters.corrections == 0


def test_the_groups_are_back_where_the_engine_fails():
    instance = coordinator(6, 5)

    def fails(self, block_hashes, max_cache_hit_length):
        if not self.attention_groups[1].use_eagle:
            raise ValueError("the engine's own")
        return find_in(self, block_hashes, max_cache_hit_length)

    with pytest.raises(ValueError, match="the engine's own"):
        one_call.run(FIND, fails, FixState(FIX), instance, [], 1000)
    assert instance.attention_groups[1].use_eagle
