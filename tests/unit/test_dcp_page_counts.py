"""vllm.dcp-page-counts without an engine: which counts its function gets, and what happens where the engine is another."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import one_call
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_zero_kv_rows import Wrapped

from attnfix.compat.fix import NOT_NEEDED
from attnfix.compat.states import PlainCounters
from attnfix.patches.vllm.dcp_page_counts import FIX, wrap

PAGE = 4
NAMES = ("num_blocks_np", "seq_lens_np", "block_table_tensor", "num_reqs", "page_size")


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


class Engine(Wrapped):
    def __call__(self, *args, **kwargs):
        self.given = dict(zip(NAMES, args), **kwargs)
        return "indices"


LENS = st.lists(st.integers(0, 40), min_size=1, max_size=5)


@given(LENS, st.integers(2, 4), st.integers(1, 3))
@settings(deadline=None)
def test_the_pages_of_all_ranks_hold_every_token_once(lens, ranks, interleave):
    before, sys.modules[wrap._BACKEND] = sys.modules.get(wrap._BACKEND), SimpleNamespace(get_dcp_local_seq_lens=shares)
    try:
        total = np.zeros(len(lens), dtype=np.int64)
        for rank in range(ranks):
            args = arguments(lens)
            wrapped = Engine()
            on_rank = builder(ranks, rank, interleave)
            assert one_call.corrected(wrap.compute_kv_metadata, wrapped, on_rank, args, {}) == "indices"
            given_lens, blocks = wrapped.given["seq_lens_np"], wrapped.given["num_blocks_np"]
            assert blocks.tolist() == [-(-n // PAGE) for n in given_lens.tolist()]
            assert [wrapped.given[name] for name in NAMES[2:]] == list(args[2:])
            assert args[1].tolist() == lens, "the engine's own buffer stays as it is"
            total += given_lens
        assert total.tolist() == lens
    finally:
        if before is None:
            del sys.modules[wrap._BACKEND]
        else:
            sys.modules[wrap._BACKEND] = before


def test_one_rank_is_left_alone(engine):
    wrapped, args = Engine(), arguments([5, 0])
    one_call.corrected(wrap.compute_kv_metadata, wrapped, builder(1), args, {})
    assert all(wrapped.given[name] is value for name, value in zip(NAMES, args)) and not wrapped.rows


def test_an_engine_that_counts_otherwise_keeps_its_own_result(engine):
    del engine.get_dcp_local_seq_lens
    failures = []
    state = SimpleNamespace(fix=FIX, counters=PlainCounters(), fired=True, confirm=None, fail=failures.append)
    wrapped, args = Engine(), arguments([5, 0])
    assert one_call.run(wrapped, state, wrap.compute_kv_metadata, builder(2), args, {}) == "indices"
    assert wrapped.given["seq_lens_np"] is args[1]
    assert len(failures) == 1 and "get_dcp_local_seq_lens" in failures[0] and state.counters.corrections == 0


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


class Builds(Wrapped):
    """`build` of 0.16.0: takes new tokens off in place, and keeps what it saw."""

    def __call__(self, prefix, common, fast_build=False):
        common.seq_lens_cpu[:] -= 3
        self.seen = common.seq_lens_cpu.tolist(), self.builder.dcp_kv_cache_interleave_size
        if self.fails:
            raise RuntimeError("the engine's")
        return "metadata"

    fails = False
    function = __call__


@pytest.mark.parametrize("form", COMMON)
@pytest.mark.parametrize("fails", [False, True])
def test_the_engine_builds_of_lengths_of_its_own(engine, form, fails):
    lens, on_rank = torch.tensor([10, 20]), builder(2)
    on_rank.vllm_config = SimpleNamespace(parallel_config=PARALLEL)
    common = COMMON[form](lens)
    for _ in range(2):
        wrapped = Builds()
        wrapped.builder, wrapped.fails = on_rank, fails
        if fails:
            with pytest.raises(RuntimeError, match="the engine's"):
                wrap.build(wrapped, on_rank, (0, common, True), {})
        else:
            assert wrap.build(wrapped, on_rank, (0, common, True), {}) == "metadata" and wrapped.rows == [2]
        assert wrapped.seen == ([7, 17], 8)
        assert lens.tolist() == [10, 20] and common.seq_lens_cpu is lens and on_rank.dcp_kv_cache_interleave_size == 1


def test_a_builder_of_0_11_knows_one_name():
    on_rank = builder(2, interleave=4)
    on_rank.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(dcp_kv_cache_interleave_size=4))
    assert wrap.interleave(on_rank) == 4
    assert wrap.build(None, builder(1), (0, None), {}) is NOT_NEEDED
