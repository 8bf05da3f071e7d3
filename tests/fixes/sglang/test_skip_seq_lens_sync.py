"""sglang.skip-seq-lens-sync without an engine: the mask, the buffers, the decision."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.skip_seq_lens_sync.fix import FIX
from tests.support import one_call
from tests.support.no_sync import NoSync

DECIDE, ALLOCATE, BUFFERS = FIX.targets[:3]
STOCK = [None, None]


def backend_of(context=64, draft=4, skip_prefill=False, graphs=True):
    return SimpleNamespace(
        max_context_len=context, num_draft_tokens=draft, skip_prefill=skip_prefill, device="cpu",
        decode_cuda_graph_kv_indices=torch.zeros(1) if graphs else None,
    )  # fmt: skip


def init_cuda_graph_state(self, max_bs, max_num_tokens, kv_indices_buf=None):
    self.called_with.append((max_bs, max_num_tokens, kv_indices_buf))
    return "the engine's"


def allocate(backend, *args):
    state, backend.called_with = FixState(FIX), []
    assert one_call.run(ALLOCATE, init_cuda_graph_state, state, backend, *args) == "the engine's"
    assert backend.called_with == [(*args, None)[:3]]
    return state.counters.corrections


def returning(stock):
    def get_verify_buffers_to_fill_after_draft(self):
        return stock

    return get_verify_buffers_to_fill_after_draft


def buffers(backend, stock=STOCK):
    state = FixState(FIX)
    return one_call.run(BUFFERS, returning(stock), state, backend), state.counters.corrections


@given(st.integers(1, 16), st.integers(1, 8), st.integers(1, 500))
@settings(max_examples=60, deadline=None)
def test_the_mask_has_exactly_the_size_of_the_worst_case(max_bs, draft, context):
    backend, rows = backend_of(context, draft), max_bs * draft
    with NoSync():
        assert allocate(backend, max_bs, rows, None) == 1
        (mask, positions), handed_out = buffers(backend)
    assert mask.shape == (rows * (context + draft),) and mask.dtype == torch.bool and not mask.any()
    assert positions is None and handed_out == 1
    # Any batch fits: the lengths of the requests are below the context's
    assert mask.numel() >= sum(draft * (context + draft) for _ in range(max_bs))


def test_the_mask_is_allocated_once_for_graphs_of_one_size():
    backend = backend_of()
    assert allocate(backend, 8, 32) == 1
    mask = buffers(backend)[0][0]
    assert allocate(backend, 8, 32) == 0 and buffers(backend)[0][0] is mask
    assert allocate(backend, 16, 64) == 1 and buffers(backend)[0][0].numel() == 64 * 68


def test_without_room_for_the_mask_the_fix_gives_up_before_the_engine_decides(monkeypatch):
    backend, state = backend_of(), FixState(FIX)
    backend.called_with = []
    monkeypatch.setattr(torch, "zeros", lambda *args, **kwargs: (_ for _ in ()).throw(torch.OutOfMemoryError("full")))
    wrapper = one_call.wrapper(ALLOCATE, init_cuda_graph_state, state)
    assert wrapper.function(backend, 8, 32, None) == "the engine's" and len(backend.called_with) == 1
    assert state.state == "failed" and state.reason.startswith("no room for a tree mask of 2176 bytes: full;")
    assert state.counters.corrections == 0


@pytest.mark.parametrize("backend", [backend_of(skip_prefill=True), backend_of(draft=None), backend_of(draft=0)])
def test_a_backend_that_verifies_nothing_gets_no_mask(backend):
    assert allocate(backend, 8, 32) == 0
    assert not hasattr(backend, "cuda_graph_custom_mask")
    stock = [None, None]
    assert buffers(backend, stock) == (stock, 0)


@pytest.mark.parametrize("left", [True, False])
def test_without_cuda_graphs_the_engines_own_buffers_are_handed_out(left):
    backend = backend_of(graphs=False)
    if left:
        backend.cuda_graph_custom_mask = None
    stock = object()
    assert buffers(backend, stock) == (stock, 0)


def test_a_mask_that_is_needed_and_absent_is_an_error_that_says_so():
    state = FixState(FIX)
    assert one_call.wrapper(BUFFERS, returning(STOCK), state).function(backend_of()) is STOCK
    assert state.state == "failed" and "RuntimeError: no tree mask" in state.reason


class TRTLLMMLABackend:
    """By the name alone does the correction know who opted out."""


class TRTLLMMLAMultiStepDraftBackend:
    pass


class Heir(TRTLLMMLABackend):
    pass


class Foreign:
    pass


SERVED = {"speculative_algorithm": "EAGLE", "enable_multi_layer_eagle": False, "enable_forward_pass_metrics": False}
KEPT = [{"speculative_algorithm": name} for name in ("STANDALONE", "NGRAM", "DFLASH", "FROZEN_KV_MTP", None)]
KEPT += [{"enable_multi_layer_eagle": True}, {"enable_forward_pass_metrics": True}]
OURS = [TRTLLMMLABackend(), TRTLLMMLAMultiStepDraftBackend(), None, Heir()]


def decision(stock, backends, settings):
    calls, state, args = [], FixState(FIX), (SimpleNamespace(**settings), backends)

    def decide_needs_cpu_seq_lens(server_args, attn_backends):
        calls.append((server_args, attn_backends))
        return stock

    result = one_call.run(DECIDE, decide_needs_cpu_seq_lens, state, *args)
    assert calls == [args] and state.counters.corrections == 0
    return result


@pytest.mark.parametrize("changed", [{}, {"speculative_algorithm": "EAGLE3"}, *KEPT])
@pytest.mark.parametrize("backends", [OURS, OURS[:1], OURS[1:2], [OURS[3], None]])
def test_only_what_knows_a_batch_without_lengths_gets_one(changed, backends):
    assert decision(True, backends, SERVED | changed) is True, "never less than the engine asks for"
    assert decision(False, backends, SERVED | changed) is (changed in KEPT)


@pytest.mark.parametrize("unknown", SERVED)
def test_a_server_of_unknown_settings_keeps_the_lengths(unknown):
    assert decision(False, OURS, {name: value for name, value in SERVED.items() if name != unknown}) is True


@pytest.mark.parametrize("changed", [{}, *KEPT])
@pytest.mark.parametrize("stock", [True, False])
@pytest.mark.parametrize("backends", [[], [None], [Foreign()]])
def test_a_decision_without_our_backends_is_the_engines(stock, changed, backends):
    assert decision(stock, backends, SERVED | changed) is stock
