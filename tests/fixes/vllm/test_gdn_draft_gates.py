"""vllm.gdn-draft-gates without an engine: which steps are marked, and the gates that a layer's kernel gets in them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.gdn_draft_gates.fix import FIX
from attnfix.patches.vllm.gdn_draft_gates.wrap import MARK
from tests.support import one_call

BUILD, CORE = (one_call.target_of(FIX, name) for name in ("build", "_forward_core"))
STEP = SimpleNamespace(attn_metadata=None)
SEEN = []


def build(self, common_prefix_len, common_attn_metadata, num_accepted_tokens=None, num_decode_draft_tokens_cpu=None):
    return SimpleNamespace(spec_sequence_masks=common_attn_metadata)


def get_forward_context():
    return STEP


def fused_sigmoid_gating_delta_rule_update(*, a, b, num_accepted_tokens=None):
    SEEN.append((a.tolist(), b.tolist()))


def forward_core(self, mixed_qkv, b, a, core_attn_out):
    fused_sigmoid_gating_delta_rule_update(a=a, b=b, num_accepted_tokens=mixed_qkv)
    fused_sigmoid_gating_delta_rule_update(a=a, b=b)


def marked(drafts, verifies=True):
    """Whether the builder's metadata is, for requests with so many drafts."""
    state, drafts = FixState(FIX), None if drafts is None else torch.tensor(drafts, dtype=torch.int32)
    metadata = one_call.run(BUILD, build, state, None, 0, True if verifies else None, None, drafts)
    assert state.counters.corrections == 0
    return getattr(metadata, MARK, False)


@pytest.mark.parametrize("drafts", [[-1, 3], [2, -1, 2], [-1, -1, 1, -1], [-1, 0]])
def test_a_step_with_a_verified_request_behind_another_one_is_marked(drafts):
    assert marked(drafts) and not marked(drafts, verifies=False)


@pytest.mark.parametrize("drafts", [None, [], [-1, -1], [3, 3], [3, 0, -1, -1]])
def test_any_other_step_is_not(drafts):
    assert not marked(drafts)


def run(metadata):
    """What the kernel got for verified tokens and for others, and corrections."""
    SEEN.clear()
    STEP.attn_metadata, state = metadata, FixState(FIX)
    layer = SimpleNamespace(prefix="layer")
    one_call.run(CORE, forward_core, state, layer, torch.tensor([1]), torch.arange(4) * 2, torch.arange(4), None)
    return list(SEEN), state.counters.corrections


ALL = (([0, 1, 2, 3], [0, 2, 4, 6]),)


def test_the_kernel_gets_the_gates_of_its_tokens():
    metadata = SimpleNamespace(**{MARK: True}, spec_token_indx=torch.tensor([1, 3]))
    assert run({"layer": metadata}) == ([([1, 3], [2, 6]), *ALL], 1)


@pytest.mark.parametrize("metadata", [None, {}, {"other": None}, {"layer": SimpleNamespace(spec_token_indx=None)}, []])
def test_without_a_mark_it_gets_all(metadata):
    assert run(metadata) == ([*ALL, *ALL], 0)
