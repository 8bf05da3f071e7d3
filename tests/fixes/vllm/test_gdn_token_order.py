"""vllm.gdn-token-order without an engine: which steps part their tokens, and in which order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.gdn_token_order.fix import FIX
from attnfix.patches.vllm.gdn_token_order.proof import bitonic
from tests.support import one_call

TARGET = one_call.target_of(FIX, "build")


def build(self, common_prefix_len, common_attn_metadata, num_accepted_tokens=None, num_decode_draft_tokens_cpu=None):
    return torch.argsort(common_attn_metadata).tolist()


def order(monkeypatch, verified, drafts, speculates=True):
    """What the builder finds for these tokens on a GPU, and corrections."""
    stock, state = torch.argsort, FixState(FIX)

    def argsort(keys, stable=False):
        return stock(keys, stable=True) if stable else torch.tensor(bitonic(keys.tolist()))

    monkeypatch.setattr(torch, "argsort", argsort)
    builder = SimpleNamespace(use_spec_decode=speculates)
    drafts = None if drafts is None else torch.tensor(drafts, dtype=torch.int32)
    found = one_call.run(TARGET, build, state, builder, 0, torch.tensor(verified), None, drafts)
    return found, state.counters.corrections


@pytest.mark.parametrize("verified", [[True] * 4 + [False] * 7, [False] * 3 + [True] * 5 + [False] * 9, [True, False] * 16])
def test_tokens_keep_their_order(monkeypatch, verified):
    right = sorted(range(len(verified)), key=verified.__getitem__)
    assert bitonic(verified) != right and sorted(bitonic(verified)) == sorted(right)
    assert order(monkeypatch, verified, [3, -1]) == (right, 1)


@pytest.mark.parametrize(
    "drafts, speculates", [(None, True), ([3, 1], True), ([-1, -1], True), ([0, -1], True), ([3, -1], False)]
)
def test_a_step_of_one_kind_is_left_alone(monkeypatch, drafts, speculates):
    verified = [True] * 6
    assert order(monkeypatch, verified, drafts, speculates) == (bitonic(verified), 0)
