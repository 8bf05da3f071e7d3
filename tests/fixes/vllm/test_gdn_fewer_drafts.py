"""vllm.gdn-fewer-drafts without an engine: which steps are marked, and what a layer's convolution gets in them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.gdn_fewer_drafts.fix import FIX
from attnfix.patches.vllm.gdn_fewer_drafts.wrap import MARK, grouped
from tests.support import one_call

BUILD, CORE = (one_call.target_of(FIX, name) for name in ("build", "_forward"))
STEP, SEEN = SimpleNamespace(attn_metadata=None), []


def starts(lengths):
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


class Builder(SimpleNamespace):
    """cut: rows that the buffers of full graphs have."""

    def build(self, common_prefix_len, common_attn_metadata, num_accepted_tokens=None, num_draft_tokens=None):
        lengths = common_attn_metadata.verified
        rows = min(len(lengths), self.cut) if self.use_full_cuda_graph else len(lengths)
        others = len(common_attn_metadata.query_start_loc_cpu) - 1 - len(lengths)
        return SimpleNamespace(
            spec_sequence_masks=True if lengths else None, spec_query_start_loc=starts(lengths)[: rows + 1], num_decodes=0,
            spec_state_indices_tensor=torch.zeros(rows, 4), num_spec_decodes=len(lengths), num_prefills=others,
            num_spec_decode_tokens=99,
        )  # fmt: skip


def build(verified, others=(), drafts=True, cut=9):
    """Metadata of a step in which so many tokens are verified of each request, and corrections. The server has three drafts."""
    batch = SimpleNamespace(verified=verified, query_start_loc_cpu=starts([*verified, *others]))
    builder, state = Builder(use_spec_decode=True, num_spec=3, use_full_cuda_graph=True, cut=cut), FixState(FIX)
    metadata = one_call.run(BUILD, Builder.build, state, builder, 0, batch, None, True if drafts else None)
    assert builder.use_full_cuda_graph
    return metadata, state.counters.corrections


def held(metadata):
    return [(rows.tolist(), places.tolist()) for rows, places in getattr(metadata, MARK)]


def test_a_step_of_different_lengths_is_marked():
    metadata, corrections = build([2, 4, 2])
    assert held(metadata) == [([0, 2], [[0, 1], [6, 7]]), ([1], [[2, 3, 4, 5]])] and corrections == 1
    assert (metadata.num_spec_decodes, metadata.num_spec_decode_tokens) == (3, 8)


@pytest.mark.parametrize("verified, others, cut", [([2, 2], (9,), 9), ([2, 2], (), 1), ([3], (1,), 9)])
def test_so_is_one_of_fewer_drafts_beside_others_or_with_few_buffers(verified, others, cut):
    metadata, corrections = build(verified, others, cut=cut)
    assert corrections == 1 and len(metadata.spec_state_indices_tensor) == len(verified)
    assert metadata.num_spec_decode_tokens == sum(verified)


@pytest.mark.parametrize(
    "verified, others, drafts",
    [([4, 4], (), True), ([4], (3,), True), ([2, 2], (), True), ([], (2, 3), True), ([], (2, 3), False), ([4], (1, 9), True)],
)
def test_any_other_step_is_not(verified, others, drafts):
    metadata, corrections = build(verified, others, drafts)
    assert not hasattr(metadata, MARK) and metadata.num_spec_decode_tokens == 99 and corrections == 0


def get_forward_context():
    return STEP


def causal_conv1d_update(x, *, conv_state_indices, num_accepted_tokens=None):
    if num_accepted_tokens is not None:
        SEEN.append((x[:, 0].tolist(), conv_state_indices.tolist(), num_accepted_tokens.tolist()))
    return x + 1


def forward(self, hidden_states, output):
    metadata, slots, accepted = STEP.attn_metadata["layer"], torch.tensor([7, 8, 9]), torch.tensor([1, 3, 2])
    x = hidden_states.view(metadata.num_spec_decodes, -1, 1).transpose(1, 2)
    x = causal_conv1d_update(x, conv_state_indices=slots[: metadata.num_spec_decodes], num_accepted_tokens=accepted)
    output.copy_(x.transpose(1, 2).reshape(-1))
    causal_conv1d_update(hidden_states[:1], conv_state_indices=slots[:1])


def run(metadata, tokens=8):
    STEP.attn_metadata, state, out = {"layer": metadata}, FixState(FIX), torch.zeros(tokens)
    SEEN.clear()
    layer = SimpleNamespace(prefix="layer")
    one_call.run(CORE, forward, state, layer, torch.arange(float(tokens)), out)
    return out.tolist(), state.counters.corrections


def marked(lengths):
    groups = [grouped(lengths, length, starts(lengths)) for length in sorted(set(lengths))]
    return SimpleNamespace(num_spec_decodes=len(lengths), num_spec_decode_tokens=sum(lengths), **{MARK: groups})


def test_requests_of_a_length_are_convolved_together():
    metadata = marked([2, 4, 2])
    assert run(metadata) == ([at + 1.0 for at in range(8)], 1) and metadata.num_spec_decodes == 3
    assert SEEN == [([[0, 1], [6, 7]], [7, 9], [1, 2]), ([[2, 3, 4, 5]], [8], [3])]


def test_without_a_mark_all_are():
    metadata = SimpleNamespace(num_spec_decodes=2)
    assert run(metadata) == ([at + 1.0 for at in range(8)], 0)
    assert SEEN == [([[0, 1, 2, 3], [4, 5, 6, 7]], [7, 8], [1, 3, 2])]


@pytest.mark.parametrize("metadata", [None, []])
def test_a_profiling_run_passes(metadata):
    STEP.attn_metadata, state = metadata, FixState(FIX)
    one_call.run(CORE, lambda self, hidden_states, output: None, state, SimpleNamespace(prefix="layer"), None, None)
    assert state.counters.corrections == 0
