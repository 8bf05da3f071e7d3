"""sglang.dsa-short-prompt-keys without an engine: keys that a kernel would rotate twice, and those that torch rotates."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.dsa_short_prompt_keys.fix import FIX
from tests.support import one_call


class Indexer:
    def __init__(self, rotary_emb):
        self.rotary_emb, self.scale = rotary_emb, 3

    def _get_k_bf16(self, x, positions, enable_dual_stream):
        key = self.wk(x)
        self.rotary_emb(positions, key, key)
        return key

    def wk(self, x):
        return x * self.scale


class InPlace:
    """Counts 1 on, as a kernel rotates: queries, then keys."""

    def __init__(self, method=None):
        if method:
            self._forward_method = SimpleNamespace(__name__=method)

    def __call__(self, positions, query, key):
        for rows in (query, key):
            rows += positions
        return query, key


def keys(rotary):
    """What the caller gets for a row of ones, and how many corrections were counted."""
    state = FixState(FIX)
    target = one_call.target_of(FIX, "_get_k_bf16")
    found = one_call.run(target, Indexer._get_k_bf16, state, Indexer(rotary), torch.ones(2), 1, False)
    return found.tolist(), state.counters.corrections


def test_a_key_is_rotated_once():
    assert keys(InPlace()) == keys(InPlace("forward_cuda")) == ([4, 4], 1)


def test_an_embedding_in_torch_is_left_alone():
    assert keys(InPlace("forward_native")) == ([5, 5], 0)
