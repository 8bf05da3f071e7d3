"""vllm.dcp-page-counts without an engine: which counts its function gets, and what happens where the engine is another."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfix.compat.status.fix_state import FAILED, FixState
from attnfix.patches.vllm.dcp_page_counts import wrap
from attnfix.patches.vllm.dcp_page_counts.fix import FIX
from tests.support import one_call

PAGE = 4
BUILD, COUNTS = (one_call.target_of(FIX, name) for name in ("build", "_compute_flashinfer_kv_metadata"))


def shares(lens, size, rank, interleave):
    """The engine's `get_dcp_local_seq_lens`, token by token."""
    return lens.new_tensor([sum(t // interleave % size == rank for t in range(n)) for n in lens.tolist()])


@pytest.fixture
def engine(monkeypatch):
    module = SimpleNamespace(get_dcp_local_seq_lens=shares)
    monkeypatch.setitem(sys.modules, wrap._BACKEND, module)
    return module


def builder(ranks, rank=0, interleave=1):
    return SimpleNamespace(dcp_world_size=ranks, dcp_rank=rank, dcp_kv_cache_interleave_size=interleave)


def arguments(lens):
    lens = np.array(lens, dtype=np.int32)
    return (lens + 100, lens, "block table", len(lens), PAGE)  # counts of something else


def compute(self, num_blocks_np, seq_lens_np, block_table_tensor, num_reqs, page_size):
    """The engine's: returns what it was given."""
    return num_blocks_np, seq_lens_np, block_table_tensor, num_reqs, page_size


LENS = st.lists(st.integers(0, 40), min_size=1, max_size=5)


@given(LENS, st.integers(2, 4), st.integers(1, 3))
@settings(deadline=None)
def test_the_pages_of_all_ranks_hold_every_token_once(lens, ranks, interleave):
    before, sys.modules[wrap._BACKEND] = sys.modules.get(wrap._BACKEND), SimpleNamespace(get_dcp_local_seq_lens=shares)
    try:
        total = np.zeros(len(lens), dtype=np.int64)
        for rank in range(ranks):
            args, on_rank = arguments(lens), builder(ranks, rank, interleave)
            blocks, given_lens, *others = one_call.run(COUNTS, compute, FixState(FIX), on_rank, *args)
            assert blocks.tolist() == [-(-n // PAGE) for n in given_lens.tolist()]
            assert others == list(args[2:])
            assert args[1].tolist() == lens, "the engine's own buffer stays as it is"
            total += given_lens
        assert total.tolist() == lens
    finally:
        if before is None:
            del sys.modules[wrap._BACKEND]
        else:
            sys.modules[wrap._BACKEND] = before


def test_one_rank_is_left_alone(engine):
    state, args = FixState(FIX), arguments([5, 0])
    given = one_call.run(COUNTS, compute, state, builder(1), *args)
    assert all(one is value for one, value in zip(given, args, strict=True)) and state.counters.corrections == 0


def test_an_engine_that_counts_otherwise_keeps_its_own_result(engine):
    del engine.get_dcp_local_seq_lens
    state, args = FixState(FIX), arguments([5, 0])
    given = one_call.wrapper(COUNTS, compute, state).function(builder(2), *args)
    assert given[1] is args[1]
    assert state.state == FAILED and "get_dcp_local_seq_lens" in state.reason and state.counters.corrections == 0


class Common:
    """A metadata that shares its lengths; a property in front of them from 0.14.0."""

    num_reqs = 2

    def __init__(self, lens):
        self._seq_lens_cpu = lens

    @property
    def seq_lens_cpu(self):
        return self._seq_lens_cpu


PARALLEL = SimpleNamespace(cp_kv_cache_interleave_size=8, dcp_kv_cache_interleave_size=1)
COMMON = {"a field": lambda lens: SimpleNamespace(seq_lens_cpu=lens, num_reqs=2), "a property": Common}


def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
    """That of 0.16.0: takes new tokens off in place. Notes what it saw; fails where the test says so."""
    common_attn_metadata.seq_lens_cpu[:] -= 3
    self.seen = common_attn_metadata.seq_lens_cpu.tolist(), self.dcp_kv_cache_interleave_size
    if self.fails:
        raise RuntimeError("the engine's")
    return "metadata"


@pytest.mark.parametrize("form", COMMON)
@pytest.mark.parametrize("fails", [False, True])
def test_the_engine_builds_of_lengths_of_its_own(engine, form, fails):
    lens, on_rank = torch.tensor([10, 20]), builder(2)
    on_rank.vllm_config, on_rank.fails = SimpleNamespace(parallel_config=PARALLEL), fails
    common = COMMON[form](lens)
    for _ in range(2):
        state, on_rank.seen = FixState(FIX), None
        state.fired = True
        if fails:
            with pytest.raises(RuntimeError, match="the engine's"):
                one_call.run(BUILD, build, state, on_rank, 0, common, True)
        else:
            assert one_call.run(BUILD, build, state, on_rank, 0, common, True) == "metadata"
            assert (state.counters.corrections, state.counters.rows) == (1, 2)
        assert state.armed and on_rank.seen == ([7, 17], 8)
        assert lens.tolist() == [10, 20] and common.seq_lens_cpu is lens and on_rank.dcp_kv_cache_interleave_size == 1


@pytest.mark.parametrize("form", COMMON)
def test_what_the_engine_does_rightly_is_not_counted(engine, form):
    """Up to 0.13.0, where no prefill is in the step, and the interleave size is the option's."""

    def decodes(self, common_prefix_len, common_attn_metadata, fast_build=False):
        return common_attn_metadata.seq_lens_cpu.tolist()

    on_rank, state = builder(2, interleave=8), FixState(FIX)
    on_rank.vllm_config = SimpleNamespace(parallel_config=PARALLEL)
    assert one_call.run(BUILD, decodes, state, on_rank, 0, COMMON[form](torch.tensor([10, 20]))) == [10, 20]
    assert state.counters.corrections == 0
    on_rank._compute_flashinfer_kv_metadata = None  # from 0.14.0; TensorRT-LLM's decodes need no pages of it
    one_call.run(BUILD, decodes, state, on_rank, 0, COMMON[form](torch.tensor([10, 20])))
    assert state.counters.corrections == 0


@pytest.mark.parametrize(
    ("lens", "blocks", "rows"), [([5, 0], [2, 0], 2), ([1, 0], [1, 0], 0), ([1, 0], [2, 1], 2)],
    ids=["the lengths are of all ranks", "all is on this rank", "the counts are of new tokens, too"],
)  # fmt: skip
def test_pages_are_counted_as_corrected_where_they_change(engine, lens, blocks, rows):
    state, given = FixState(FIX), [np.array(numbers, dtype=np.int32) for numbers in (blocks, lens)]
    state.fired = True
    one_call.run(COUNTS, compute, state, builder(2), *given, "block table", 2, PAGE)
    assert (state.counters.corrections, state.counters.rows) == (int(rows > 0), rows)


def test_a_builder_of_0_11_knows_one_name():
    on_rank = builder(2, interleave=4)
    on_rank.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(dcp_kv_cache_interleave_size=4))
    assert wrap.interleave(on_rank) == 4
    alone, state, lens = builder(1), FixState(FIX), torch.tensor([10, 20])
    alone.fails = False
    assert one_call.run(BUILD, build, state, alone, 0, COMMON["a field"](lens)) == "metadata"
    assert lens.tolist() == [7, 17] and state.counters.corrections == 0
