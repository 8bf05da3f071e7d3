"""sglang.skip-seq-lens-sync without an engine: the mask, the buffers, the decision, and what its structure looks at."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from no_sync import NoSync

from attnfix.patches.sglang.skip_seq_lens_sync import FIX, wrap
from attnfix.patches.sglang.skip_seq_lens_sync import structure as recognition

STOCK = [None, None]


class Wrapped:
    """The engine's function, and what the one wrapper offers to a correction."""

    def __init__(self, result=None):
        self.result, self.calls, self.corrections = result, [], 0

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return self.result

    def corrected(self, rows=0):
        self.corrections += 1


def backend_of(context=64, draft=4, skip_prefill=False, graphs=True):
    return SimpleNamespace(
        max_context_len=context, num_draft_tokens=draft, skip_prefill=skip_prefill, device="cpu",
        decode_cuda_graph_kv_indices=torch.zeros(1) if graphs else None,
    )  # fmt: skip


def allocate(backend, *args):
    wrapped = Wrapped("the engine's")
    assert wrap.init_cuda_graph_state(wrapped, backend, args, {}) == "the engine's"
    assert wrapped.calls == [(args, {})]
    return wrapped.corrections


def buffers(backend, stock=STOCK):
    wrapped = Wrapped(stock)
    return wrap.get_verify_buffers_to_fill_after_draft(wrapped, backend, (), {}), wrapped.corrections


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
    backend, wrapped, said = backend_of(), Wrapped("the engine's"), []
    wrapped.give_up = said.append
    monkeypatch.setattr(torch, "zeros", lambda *args, **kwargs: (_ for _ in ()).throw(torch.OutOfMemoryError("full")))
    assert wrap.init_cuda_graph_state(wrapped, backend, (8, 32, None), {}) == "the engine's"
    assert said == ["no room for a tree mask of 2176 bytes: full"] and wrapped.corrections == 0


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
    with pytest.raises(RuntimeError, match="no tree mask"):
        buffers(backend_of())


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
    wrapped = Wrapped(stock)
    args = SimpleNamespace(**settings), backends
    result = wrap.decide_needs_cpu_seq_lens(wrapped, None, args, {})
    assert wrapped.calls == [(args, {})] and wrapped.corrections == 0
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


# What code is recognised


def path_of(name, statement):
    """A path of one statement each."""
    return {place: ast.parse(f"value = {statement}" if place == name else "value = 1").body[0] for place in recognition.PATH}


@pytest.fixture
def known(monkeypatch):
    nodes = path_of(None, "")
    monkeypatch.setattr(recognition, "KNOWN", frozenset({recognition.digest_of_path(nodes.get)}))
    return nodes


def test_every_place_of_the_path_is_a_witness():
    assert set(recognition.PATH) <= {str(place) for place in FIX.places}
    assert len(set(recognition.PATH)) == len(recognition.PATH)
    assert {place.module for target in FIX.targets for place in target.witnesses} <= {
        place.partition(":")[0] for place in recognition.PATH
    }


def test_the_whole_path_and_nothing_else_is_recognised(known):
    assert "0.5.13" in recognition.structure(known.get)


@pytest.mark.parametrize("place", recognition.PATH)
def test_a_path_with_one_part_changed_or_missing_is_not_recognised(known, place):
    assert recognition.structure(path_of(place, "batch.seq_lens_cpu").get) is None
    assert recognition.structure({name: node for name, node in known.items() if name != place}.get) is None


def test_parts_that_changed_places_are_not_recognised(known):
    first, second = recognition.PATH[:2]
    other = path_of(first, "2")
    assert recognition.structure((other | {first: other[second], second: other[first]}).get) is None


def test_no_code_at_all_is_not_recognised():
    assert recognition.structure(lambda place: None) is None
