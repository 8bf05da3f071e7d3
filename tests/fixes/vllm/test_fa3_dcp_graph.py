"""vllm.fa3-dcp-graph without an engine: which lengths keep an address, and what the kernel is told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.fa3_dcp_graph import wrap
from attnfix.patches.vllm.fa3_dcp_graph.fix import FIX
from tests.support import one_call

BUILD, FORWARD = one_call.target_of(FIX, "build"), one_call.target_of(FIX, "_forward_with_dcp")
ROOM, LARGEST = 4, 8


def builder(full_graphs=True):
    scheduler = SimpleNamespace(max_num_seqs=ROOM)
    config = SimpleNamespace(scheduler_config=scheduler)
    return SimpleNamespace(use_full_cuda_graph=full_graphs, vllm_config=config, max_cudagraph_size=LARGEST)


def new_state():
    state = FixState(FIX)
    state.fired = True
    return state


def build(instance, lens, tokens=LARGEST):
    """(lengths, corrections) of a step of so many tokens whose own lengths on this rank are these."""
    lens = None if lens is None else torch.tensor(lens, dtype=torch.int32)
    state = new_state()

    def made(self, common_prefix_len, common_attn_metadata, fast_build=False):
        return SimpleNamespace(dcp_context_kv_lens=lens, num_actual_tokens=tokens)

    return one_call.run(BUILD, made, state, instance, 0, "the batch").dcp_context_kv_lens, state.counters.corrections


def test_every_step_writes_to_the_address_of_the_first():
    instance = builder()
    captured, fired = build(instance, [0, 0, 0])
    replayed, _ = build(instance, [7, 8])
    assert fired == 1 and captured.dtype == torch.int32
    assert captured.data_ptr() == replayed.data_ptr() and replayed.tolist() == [7, 8]
    assert captured.tolist() == [7, 8, 0], "padding rows of a larger graph have no context"


def test_a_batch_that_no_graph_is_captured_for_keeps_its_own():
    lens, fired = build(builder(), list(range(ROOM + 2)))
    assert lens.tolist() == list(range(ROOM + 2)) and fired == 0


@pytest.mark.parametrize("largest", [LARGEST, None])
def test_a_step_of_more_tokens_than_a_graph_has_is_not_counted(largest):
    """Its lengths are copied all the same: nothing else may be written to a graph's address."""
    instance = builder()
    instance.max_cudagraph_size = largest
    assert build(instance, [7, 8], LARGEST + 1)[1] == 0 and hasattr(instance, wrap._BUFFER)


@pytest.mark.parametrize("instance, lens", [(builder(full_graphs=False), [3]), (builder(), None)])
def test_without_full_graphs_or_dcp_nothing_is_copied(instance, lens):
    found, fired = build(instance, lens)
    assert fired == 0 and not hasattr(instance, wrap._BUFFER)
    assert (found is None) == (lens is None)


# The kernel's splits


def flash_attn_varlen_func(q, num_splits=0, **others):
    if q is None:
        raise RuntimeError("the engine's")
    return num_splits


def silent(self, query, key, value, key_cache, value_cache, output, attn_metadata, q_descale=None):
    """As the engine's function up to 0.16.0."""
    return flash_attn_varlen_func(q=query, k=key), flash_attn_varlen_func(q=query)


def saying(self, query, key, value, key_cache, value_cache, output, attn_metadata):
    return flash_attn_varlen_func(q=query, num_splits=attn_metadata.max_num_splits)


def saying_among_many(self, query, key, value, key_cache, value_cache, output, attn_metadata):
    """Keywords of a call with this many are constants one by one."""
    return flash_attn_varlen_func(
        q=query, a=0, b=0, c=0, d=0, e=0, f=0, g=0, h=0, i=0, j=0, k=0, l=0, m=0, n=0, o=0, p=0, r=0, s=0,
        num_splits=attn_metadata.max_num_splits,
    )  # fmt: skip


def forward(function, splits, query="q"):
    state, metadata = new_state(), SimpleNamespace(max_num_splits=splits)
    result = one_call.run(FORWARD, function, state, "the layer", query, *"kvKVo", metadata)
    return result, state.counters.corrections


def test_every_launch_is_told_what_the_metadata_was_made_for():
    assert forward(silent, 32) == ((32, 32), 1)
    assert flash_attn_varlen_func("q") == 0, "the engine's own name is as it was"


def test_where_the_heuristic_chooses_for_both_nothing_changes():
    assert forward(silent, 0) == ((0, 0), 0)


@pytest.mark.parametrize("function", [saying, saying_among_many])
def test_a_release_that_says_it_itself_is_left_alone(function):
    assert wrap.says_splits(function) and not wrap.says_splits(silent)
    assert forward(function, 32) == (32, 0)


def test_a_kernel_that_refuses_the_number_is_launched_as_the_engine_does(monkeypatch):
    """Such as a build of FlashAttention that knows no splits."""

    def refuses(q, **others):
        if "num_splits" in others:
            raise RuntimeError("no splits here")
        return "stock"

    monkeypatch.setitem(globals(), "flash_attn_varlen_func", refuses)
    state = new_state()
    function = one_call.wrapper(FORWARD, silent, state).function
    assert function("the layer", "q", *"kvKVo", SimpleNamespace(max_num_splits=32)) == ("stock", "stock")
    assert state.state == "failed" and "no splits here" in state.reason and state.counters.corrections == 0


def test_an_error_of_the_engine_passes():
    with pytest.raises(RuntimeError, match="the engine's"):
        forward(silent, 32, query=None)
