"""sglang.fa3-swa-topk without an engine: what the call is shown, what comes back, and what stays as it was."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.fa3_swa_topk.fix import FIX
from tests.support import one_call

MAPPING = torch.arange(50).roll(7)
POOL = SimpleNamespace(translate_loc_from_full_to_swa=lambda loc: MAPPING[loc].int())


def tables():
    prefix, draft = torch.tensor([[5, 3, 9]]), torch.tensor([[11, 12], [11, 14]])
    lens = torch.tensor([3])
    metadata = SimpleNamespace(page_table=prefix, cache_seqlens_int32=lens, swa_spec_metadata=None)
    return metadata, SimpleNamespace(page_table=draft, cache_seqlens_int32=lens)


class Backend:
    use_sliding_window_kv_pool = True
    token_to_kv_pool = POOL

    def _init_sliding_window_attn_spec_metadata(self, metadata, metadata_expand, metadata_swa=None):
        self.saw = metadata.page_table, metadata_expand.page_table
        self.buffers = metadata.cache_seqlens_int32, metadata_expand.cache_seqlens_int32
        metadata.swa_spec_metadata = metadata_swa or "made"


def run(backend, *args):
    state, name = FixState(FIX), "_init_sliding_window_attn_spec_metadata"
    one_call.run(one_call.target_of(FIX, name), getattr(Backend, name), state, backend, *args)
    return state.counters.corrections


@pytest.mark.parametrize("given, joined", [((), "made"), (("captured",), "captured")])
def test_both_tables_are_shown_translated_and_stay_as_they_were(given, joined):
    backend, (metadata, expand) = Backend(), tables()
    before = metadata.page_table, expand.page_table
    assert run(backend, metadata, expand, *given) == 1 and metadata.swa_spec_metadata == joined
    assert (metadata.page_table, expand.page_table) == before
    for saw, table in zip(backend.saw, before):
        assert saw.tolist() == MAPPING[table].tolist()
    assert backend.buffers == (metadata.cache_seqlens_int32, expand.cache_seqlens_int32), "the same tensors, to be written"


def test_without_a_pool_of_their_own_the_tables_are_the_engines():
    backend, (metadata, expand) = Backend(), tables()
    backend.use_sliding_window_kv_pool = False
    assert run(backend, metadata, expand) == 0
    assert backend.saw == (metadata.page_table, expand.page_table) and metadata.swa_spec_metadata == "made"
