"""sglang.trtllm-mha-window-pages without an engine: which layers get another table, and which slots keys are written to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.trtllm_mha_window_pages import wrap
from attnfix.patches.sglang.trtllm_mha_window_pages.fix import FIX
from tests.support import one_call

SIZE = 4
FULL, FIRST, SECOND = 0, 1, 2  # layers


class Pool:
    def __init__(self):
        self.layers_mapping = {FULL: (0, False), FIRST: (0, True), SECOND: (1, True)}
        self.full_to_swa_index_mapping = torch.arange(64).roll(-2 * SIZE)  # two pages further on
        self.asked = 0

    def translate_loc_from_full_to_swa(self, loc):
        self.asked += 1
        return self.full_to_swa_index_mapping[loc].to(torch.int32)


class Backend:
    def __init__(self, table):
        self.page_size, self.forward_metadata = SIZE, SimpleNamespace(page_table=table)


def attend(self, q, k, v, layer, forward_batch, save_kv_cache=True):
    return self.forward_metadata.page_table.clone()


def write(self, q, k, v, layer, forward_batch):
    return forward_batch.out_cache_loc


def run(name, function, backend, layer, pool, **batch):
    """(what the engine's function saw, how many corrections were counted)"""
    state = FixState(FIX)
    layer, batch = SimpleNamespace(layer_id=layer), SimpleNamespace(token_to_kv_pool=pool, **batch)
    seen = one_call.run(one_call.target_of(FIX, name), function, state, backend, None, None, None, layer, batch)
    return seen, state.counters.corrections


@pytest.mark.parametrize("name", ["forward_decode", "forward_extend"])
def test_window_layers_see_pages_of_their_pool(name):
    table = torch.tensor([[1, 5], [0, 3]], dtype=torch.int32)
    backend, pool = Backend(table), Pool()
    assert run(name, attend, backend, FULL, pool)[1] == 0 and pool.asked == 0
    seen, corrections = run(name, attend, backend, FIRST, pool)
    assert seen.tolist() == [[3, 7], [2, 5]] and seen.dtype == torch.int32 and corrections == 1
    assert backend.forward_metadata.page_table is table


def test_a_large_table_is_translated_in_parts(monkeypatch):
    table, pool = torch.arange(15, dtype=torch.int32).view(5, 3), Pool()
    whole = wrap.pages(pool, table, SIZE)
    monkeypatch.setattr(wrap, "_ENTRIES", 7)
    parts = wrap.pages(pool, table, SIZE)
    assert parts.equal(whole) and parts.dtype == whole.dtype and parts.is_contiguous() and pool.asked == 1 + 3


def test_layers_of_a_forward_share_a_table_and_each_forward_has_its_own():
    backend, pool = Backend(torch.tensor([[1]])), Pool()
    run("forward_decode", attend, backend, FIRST, pool)
    assert run("forward_decode", attend, backend, SECOND, pool)[0].tolist() == [[3]] and pool.asked == 1
    backend.forward_metadata.page_table[:] = 2  # as a replay of a graph does
    assert run("forward_decode", attend, backend, FIRST, pool)[0].tolist() == [[4]]
    backend.forward_metadata = SimpleNamespace(page_table=torch.tensor([[6]]))
    assert run("forward_decode", attend, backend, SECOND, pool)[0].tolist() == [[8]]


@pytest.mark.parametrize("ahead", [False, True])
def test_keys_of_an_fp8_cache_go_to_the_window_pool(ahead):
    pool, loc = Pool(), torch.tensor([4, 9])
    pool.swa_loc = torch.tensor([1, 2], dtype=torch.int32) if ahead else None
    seen, corrections = run("_fused_fp8_set_kv_buffer", write, Backend(None), SECOND, pool, out_cache_loc=loc)
    assert seen.tolist() == ([1, 2] if ahead else [12, 17]) and seen.dtype == loc.dtype and corrections == 1
    assert run("_fused_fp8_set_kv_buffer", write, Backend(None), FULL, pool, out_cache_loc=loc) == (loc, 0)


def test_other_pools_and_later_releases_stay():
    unmapped, backend = Pool(), Backend(torch.tensor([[1]]))
    unmapped.full_to_swa_index_mapping = None
    for pool in (unmapped, SimpleNamespace()):
        assert run("forward_decode", attend, backend, FIRST, pool)[1] == 0
    backend._get_layer_page_table = backend._get_layer_cache_loc = None
    assert run("forward_decode", attend, backend, FIRST, Pool())[1] == 0
    assert run("_fused_fp8_set_kv_buffer", write, backend, FIRST, Pool(), out_cache_loc=None)[1] == 0
