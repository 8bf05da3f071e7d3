"""A zeroer of KV blocks in the place of vLLM's, and steps of its scheduler, for fixes that clear blocks."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from attnfix.patches.vllm.shared import cleared_blocks


class Zeroer:
    """The engine's of 0.23.0: it has cleared `blocks`, and asserts that pages are of one size."""

    uneven = False

    def __init__(self, device, pin_memory, attn_groups_iter, kernel_block_sizes, cache_dtype, static_forward_context):
        assert not self.uneven
        self.kinds, self.sizes, self.blocks = [type(each.kv_cache_spec) for each in attn_groups_iter], kernel_block_sizes, []

    def zero_block_ids(self, blocks):
        self.blocks += blocks


def stand_in(monkeypatch):
    """Put the zeroer and what is asked beside it in place; returns the platform."""
    platform = SimpleNamespace(is_cpu=lambda: False)
    for name, values in (
        (cleared_blocks._PLATFORMS, {"current_platform": platform}),
        (cleared_blocks._MEMORY, {"is_pin_memory_available": lambda: False}),
        (cleared_blocks._WORKER, {"KVBlockZeroer": Zeroer}),
        (cleared_blocks._INTERFACE, {"FullAttentionSpec": SimpleNamespace}),
    ):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**values))
    monkeypatch.setattr(Zeroer, "uneven", False)
    return platform


def step(new=(), **cached):
    """new: (blocks of each group, computed tokens). cached: name -> (the same, whether it is resumed)."""
    return SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(block_ids=blocks, num_computed_tokens=computed) for blocks, computed in new],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(cached), new_block_ids=[blocks for blocks, *_ in cached.values()],
            num_computed_tokens=[computed for _, computed, _ in cached.values()],
            resumed_req_ids={name for name, (*_, resumed) in cached.items() if resumed},
        ),
    )  # fmt: skip
