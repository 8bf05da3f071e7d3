"""sglang.lora-captured-segments without an engine: what is laid out, and that no batch needs more segments than captured."""

from __future__ import annotations

from collections import Counter
from types import FunctionType, SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.lora_captured_segments import wrap
from attnfix.patches.sglang.lora_captured_segments.fix import FIX
from tests.support import one_call
from tests.support.no_sync import NoSync

CHUNK, ROOM = 16, 12


class Backend:
    """Lays out a segment for each adapter in use, as batches of up to CHUNK requests have it."""

    def __init__(self):
        self.info = SimpleNamespace(
            bs=0, num_segments=0, max_len=CHUNK, weight_indices=torch.full((ROOM,), 7), seg_indptr=torch.full((ROOM + 1,), 99)
        )

    def prepare_lora_batch(self, forward_batch, weight_indices, lora_ranks, scalings, use_cuda_graph):
        counted = sorted(Counter(weight_indices).items())
        self.batch_info = self.info
        self.info.bs, self.info.num_segments = len(weight_indices), len(counted)
        self.info.weight_indices[: len(counted)] = torch.tensor([slot for slot, _ in counted])
        self.info.seg_indptr[: len(counted) + 1] = torch.tensor([0, *(n for _, n in counted)]).cumsum(0)

    prepare_lora_batch = FunctionType(
        prepare_lora_batch.__code__, {**globals(), "MIN_CHUNK_SIZE": CHUNK}, "prepare_lora_batch"
    )  # fmt: skip


def laid_out(slots, ranks, graph=True, drafts=0):
    """What the backend has for requests with adapters in these slots, and how many corrections were counted."""
    backend, state = Backend(), FixState(FIX)
    mode = SimpleNamespace(is_target_verify=lambda: drafts > 0)
    batch = SimpleNamespace(forward_mode=mode, spec_info=SimpleNamespace(draft_token_num=drafts))
    target = one_call.target_of(FIX, "prepare_lora_batch")
    with NoSync():
        one_call.run(target, Backend.prepare_lora_batch, state, backend, batch, slots, ranks, [1.0] * len(ranks), graph)
    return backend.info, state.counters.corrections


def test_segments_that_a_batch_lacks_are_empty_and_of_an_unused_slot():
    info, corrections = laid_out([1, 2, 1, 2], [0, 16, 8])
    assert corrections == 1 and info.num_segments == 3 and info.bs == 4
    assert info.weight_indices.tolist() == [1, 2, *[0] * (ROOM - 2)]
    assert info.seg_indptr.tolist() == [0, 2, 4, *[4] * (ROOM - 2)]


def test_a_graph_is_captured_for_all_adapters_and_nothing_is_counted():
    info, corrections = laid_out([0] * 4, [0, 0])
    assert info.num_segments == 2 and corrections == 0


def test_other_batches_are_left_alone():
    info, corrections = laid_out([1, 2, 1], [0, 16, 8], graph=False)
    assert info.num_segments == 2 and corrections == 0 and info.seg_indptr[-1] == 99 and info.weight_indices[-1] == 7


@pytest.mark.parametrize("experts, programs", [(False, 3), (True, 1)])
def test_a_grid_of_drafts_has_a_program_for_each_chunk(experts, programs):
    """But that of experts, whose buffers have a place for each request."""
    instance = Backend()
    if experts:
        instance.moe_cg_buffers = {}
    batch = SimpleNamespace(
        forward_mode=SimpleNamespace(is_target_verify=lambda: True), spec_info=SimpleNamespace(draft_token_num=36)
    )
    target, state = one_call.target_of(FIX, "prepare_lora_batch"), FixState(FIX)
    one_call.run(target, Backend.prepare_lora_batch, state, instance, batch, [0], [16, 8], [1.0, 1.0], True)
    assert instance.info.num_segments == 3 and instance.info.bs == programs


@given(st.lists(st.integers(0, 5), min_size=1, max_size=80), st.integers(0, 40), st.sampled_from([1, 3, 12, 16, 17, 40]))
def test_no_batch_needs_more_segments_than_its_graph_has(slots, more, each):
    """`more` requests of the graph are padding. Chunks may be larger than the least one, never smaller."""
    needed = sum(-(-count * each // CHUNK) for count in Counter(slots).values())
    most = wrap.most_segments(len(slots) + more, each, 6, CHUNK)
    assert needed <= most <= (len(slots) + more) * -(-each // CHUNK)
