"""vllm.dcp-page-counts: counts that the engine's function gets without an engine, and every interleave on real releases."""

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


HEAD = """
from attnfix.patches.lab.proof import replaced
from attnfix.patches.vllm.dcp_page_counts import proof, wrap
from attnfix.patches.vllm.dcp_page_counts.proof import Batch, Layout

proven = proof.Proof()
proven.prepare()
MIXED, LONG = proof._MIXED, proof._LONG

def error(layout, batch=MIXED):
    return proof.run(7, batch, layout).error

def plans():
    return {kind.__name__: [part.tolist() for part in parts] for kind, parts in proof._planned.items()}

def state():
    import attnfix
    return next(row["state"] for row in attnfix.status() if row["fix"] == "vllm.dcp-page-counts")
"""


@pytest.mark.parametrize("release", ["0.12.0", "0.14.0", "0.24.0", "0.29.0"])
def test_tokens_lie_on_ranks_as_the_option_says(engine_fork, release):
    """`--cp-kv-cache-interleave-size` of 1, 2 and a page; put back: the builder's own name for it, which stays 1."""
    code = HEAD + (
        "right = [error(Layout(2, interleave)) for interleave in (1, 2, proof._PAGE)] + [error(Layout(3, 2))]\n"
        "with replaced(wrap, 'interleave', lambda builder: builder.dcp_kv_cache_interleave_size):\n"
        "    ignored = [error(Layout(2, interleave)) for interleave in (1, 2, proof._PAGE)]\n"
        "answer([right, ignored, state()])"
    )
    right, ignored, state = engine_fork("vllm", release).evaluate(code)
    assert max(right) < 1e-6 and state == "effective"
    assert ignored[0] < 1e-6 and min(ignored[1:]) > 0.1


TWICE = """
import torch

def numbers(common):
    return [x.tolist() for x in (common.seq_lens_cpu, common.num_computed_tokens_cpu)]

def built_by(second):
    "(plan of the second builder, plan it makes alone, what others read of the metadata before and after)"
    worker, (first, other) = proof.rank_of(1, 2, 1)
    with worker:
        alone, common = worker.batch(*LONG, pages=proof._PAGES), worker.batch(*LONG, pages=proof._PAGES)
        held = common.seq_lens_cpu  # another builder's metadata may hold it, or the runner's buffer be it
        before, held_before = numbers(worker.batch(*LONG, pages=proof._PAGES)), held.tolist()
        other.build(0, alone)
        expected = plans()
        first.build(0, common)
        second(other, common)
        return plans(), expected, [before, held_before], [numbers(common), held.tolist()]
"""
SECOND = {
    "a second group": "lambda builder, common: builder.build(0, common)",
    "a drafter": "lambda builder, common: builder.build_for_drafting(common, 0)",
    "a group with a block table of its own": "lambda builder, common: builder.build(0, dataclasses.replace(common))",
}


@pytest.mark.parametrize("release", ["0.11.2", "0.19.1", "0.29.0"])
def test_metadata_is_built_twice(engine_fork, release):
    """Everyone plans as if alone, and the lengths stay what they were; put back: the engine's subtraction in place."""
    cases = ", ".join(f"{name!r}: built_by({second})" for name, second in SECOND.items())
    code = HEAD + TWICE + (
        f"import dataclasses\ndone = {{{cases}}}\n"
        "errors = [error(Layout(2, twice=True), LONG)]\n"
        "with replaced(wrap, 'with_own_lens', lambda common: common):\n"
        "    errors.append(error(Layout(2, twice=True), LONG))\n"
        "answer([done, errors])"
    )  # fmt: skip
    done, (right, in_place) = engine_fork("vllm", release).evaluate(code)
    for name, (planned, expected, before, after) in done.items():
        assert planned == expected, name
        assert before == after, name
    assert right < 1e-6 and in_place > 0.1


def test_no_page_count_is_negative(engine_fork):
    """A fresh prompt's context is empty, however often its metadata is built."""
    code = HEAD + (
        "fresh = Batch((0,), (150,))\n"
        "answer([error(Layout(2, twice=True), fresh), plans()])"
    )  # fmt: skip
    right, planned = engine_fork("vllm", "0.19.1").evaluate(code)
    assert right < 1e-6 and planned["_Held"][0] == [0, 0]


@pytest.mark.parametrize("release", ["0.11.2", "0.19.1"])
def test_one_rank_gets_the_metadata_that_was_made(engine_fork, release):
    code = HEAD + (
        "worker, (builder, _) = proof.rank_of(0, 1, 1)\n"
        "seen = []\n"
        "split = proven.engine[proof._BACKEND].split_decodes_and_prefills\n"
        "look = lambda common, **more: (seen.append(common), split(common, **more))[1]\n"
        "with worker, replaced(proven.engine[proof._BACKEND], 'split_decodes_and_prefills', look):\n"
        "    common = worker.batch(*MIXED, pages=proof._PAGES)\n"
        "    builder.build(0, common)\n"
        "answer(seen[0] is common)"
    )
    assert engine_fork("vllm", release).evaluate(code)


def test_the_wait_for_lengths_is_one_that_the_engine_allows(engine_fork):
    """VLLM_GPU_SYNC_CHECK=error: lengths that only the GPU knows are copied where the engine lets its own code wait for it."""
    code = HEAD + (
        "import torch\n"
        "from vllm.utils import gpu_sync_debug\n"
        "gpu_sync_debug._SYNC_CHECK_MODE = 'error'  # read at import, of a platform that has a GPU\n"
        "worker, (builder, _) = proof.rank_of(1, 2, 1)\n"
        "class OnGpu(torch.Tensor):\n"
        "    def to(self, *args, **kwargs):\n"
        "        if not gpu_sync_debug._allow_depth.get():\n"
        "            raise RuntimeError(gpu_sync_debug.SYNC_ERROR_MESSAGE)\n"
        "        return self.as_subclass(torch.Tensor).clone()\n"
        "with worker:\n"
        "    builder.build(0, worker.batch(*MIXED, pages=proof._PAGES))\n"
        "    expected = plans()\n"
        "    common = worker.batch(*MIXED, pages=proof._PAGES, _seq_lens_cpu=None)\n"
        "    common.seq_lens = common.seq_lens.as_subclass(OnGpu)\n"
        "    builder.build(0, common)\n"
        "answer([plans() == expected, state()])"
    )  # fmt: skip
    assert engine_fork("vllm", "0.29.0").evaluate(code) == [True, "effective"]
