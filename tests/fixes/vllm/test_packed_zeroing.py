"""vllm.packed-zeroing without an engine: what the engine is told of layers that lie within one block, and of others."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.packed_zeroing.fix import FIX
from tests.support import one_call

BLOCKS, PAGE = 8, 16
ROWS = torch.arange(BLOCKS * PAGE * 2, dtype=torch.uint8).view(BLOCKS, 2 * PAGE)


class Zeroer:
    """The engine's, as far as it asks: where each layer's blocks begin, and how far they lie apart."""

    def __init__(self, attn_groups_iter, static_forward_context, runner_only_attn_layers=None):
        layers = [static_forward_context[name].kv_cache for name in attn_groups_iter]
        self.segments = {(cache.data_ptr(), cache.stride(0)) for cache in layers}


def planned(**caches):
    """Segments, from the first byte of `ROWS` on, and how many corrections were counted."""
    state, zeroer = FixState(FIX), object.__new__(Zeroer)
    layers = {name: SimpleNamespace(kv_cache=cache) for name, cache in caches.items()}
    layers["of states"] = SimpleNamespace(kv_cache=(ROWS, ROWS))
    layers["without a cache"] = SimpleNamespace()
    one_call.run(one_call.target_of(FIX, "__init__"), Zeroer.__init__, state, zeroer, iter(caches), layers)
    assert all(layers[name].kv_cache is cache for name, cache in caches.items())
    return {(begin - ROWS.data_ptr(), step) for begin, step in zeroer.segments}, state.counters.corrections


def test_layers_within_one_block_are_cleared_as_one():
    first, second = ROWS[:, :PAGE], ROWS[:, PAGE:].view(torch.bfloat16).view(BLOCKS, 2, PAGE // 4)
    assert planned(first=first, second=second.view(torch.uint8)) == ({(0, 2 * PAGE)}, 1)
    assert planned(second=second) == ({(0, PAGE)}, 1)


def test_the_first_layer_of_a_block_is_left():
    assert planned(first=ROWS[:, :PAGE]) == ({(0, 2 * PAGE)}, 0)


def test_layers_one_behind_the_other_are_left():
    first, second = ROWS.flatten().view(2, BLOCKS, PAGE)
    assert planned(first=first, second=second) == ({(0, PAGE), (BLOCKS * PAGE, PAGE)}, 0)
