"""sglang.fa3-encoder-replay without an engine: what is read behind a row, what stays, and what is put back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.fa3_encoder_replay import wrap
from attnfix.patches.sglang.fa3_encoder_replay.fix import FIX
from tests.support import one_call
from tests.support.no_sync import NoSync

EAGER = one_call.target_of(FIX, "init_forward_metadata")
GRAPH = one_call.target_of(FIX, "_apply_cuda_graph_metadata")
TABLE = torch.arange(5 * 12, dtype=torch.int32).view(5, 12)
ROWS, LENS = torch.tensor([3, 1, 4]), torch.tensor([2, 0, 7])


class Backend:
    """`longest`: columns of text that are read of each row."""

    page_size = 1

    def __init__(self, longest=9, error=None, **fields):
        self.longest, self.error, self.req_to_token = longest, error, TABLE
        self.req_to_token_pool = SimpleNamespace(req_to_token=TABLE, size=5)
        vars(self).update(fields)

    def init_forward_metadata(self, forward_batch):
        assert self.req_to_token_pool.size == 5
        return self.plan(self.req_to_token_pool.req_to_token, forward_batch.req_pool_indices, forward_batch.encoder_lens)

    def _apply_cuda_graph_metadata(self, bs, req_pool_indices, encoder_lens, spec_info):
        return self.plan(self.req_to_token, req_pool_indices, encoder_lens)

    def plan(self, table, rows, lens):
        """As the engine does, whose maximum of the encoders waits for the GPU."""
        self.seen, longest = table, 0 if lens is None else 7
        columns = torch.arange(self.longest) if lens is None else lens.unsqueeze(1) + torch.arange(self.longest)
        self.forward_metadata = SimpleNamespace(
            max_seq_len_k=self.longest, encoder_max_seq_len_k=longest, cache_seqlens_int32=rows,
            encoder_page_table=table[rows, :longest], page_table=table[rows.unsqueeze(1), columns],
        )  # fmt: skip
        if self.error:
            raise self.error
        return "planned"


def run(backend, where, lens=LENS, spec_info=None):
    state = FixState(FIX)
    if where is EAGER:
        args = [SimpleNamespace(req_pool_indices=ROWS, encoder_lens=lens, spec_info=spec_info)]
    else:
        args = [len(ROWS), ROWS, lens, spec_info]
    function = getattr(Backend, where.code_paths[0].qualname.rpartition(".")[2])
    assert one_call.run(where, function, state, backend, *args) == "planned"
    return state


BOTH = pytest.mark.parametrize("where", [EAGER, GRAPH], ids=["eager", "graph"])


@BOTH
def test_behind_a_row_its_last_column_is_read(where):
    backend = Backend()
    with NoSync():
        state = run(backend, where)
    found = backend.forward_metadata
    expected = [[int(TABLE[row, min(n + at, 11)]) for at in range(9)] for row, n in zip(ROWS.tolist(), LENS.tolist())]
    assert found.page_table.tolist() == expected and found.page_table.dtype == torch.int32
    assert found.encoder_page_table.tolist() == TABLE[ROWS, :7].tolist()
    assert type(found.page_table) is type(found.encoder_page_table) is torch.Tensor
    assert (state.counters.corrections, state.counters.rows) == (1, 3)
    assert backend.seen.data_ptr() == TABLE.data_ptr()
    assert backend.req_to_token is TABLE is backend.req_to_token_pool.req_to_token


@BOTH
def test_columns_within_a_row_are_left(where):
    backend = Backend(longest=5)
    with NoSync():
        state = run(backend, where)
    assert backend.forward_metadata.page_table.tolist() == TABLE[ROWS[:, None], LENS[:, None] + torch.arange(5)].tolist()
    assert not state.counters.corrections


@BOTH
@pytest.mark.parametrize(
    "fields, batch",
    [({}, {"lens": None}), ({"page_size": 16}, {}), ({}, {"spec_info": "drafts"}),
     ({"kv_index_translator": SimpleNamespace(is_translating=True)}, {})],
    ids=["no encoder", "larger pages", "drafts", "translated slots"],
)  # fmt: skip
def test_others_pass_untouched(where, fields, batch):
    backend = Backend(longest=5, **fields)
    with NoSync():
        state = run(backend, where, **batch)
    assert backend.seen is TABLE and not state.counters.corrections


def test_a_translator_that_translates_nothing_is_no_matter():
    backend = Backend(kv_index_translator=SimpleNamespace(is_translating=False))
    assert run(backend, GRAPH).counters.corrections == 1


@BOTH
def test_an_error_of_the_engine_passes_and_leaves_its_table(where):
    backend = Backend(error=RuntimeError("the engine's own"))
    with pytest.raises(RuntimeError, match="the engine's own"):
        run(backend, where)
    assert backend.req_to_token is TABLE is backend.req_to_token_pool.req_to_token


def test_the_bounded_table_is_the_same_memory():
    table = TABLE.clone()
    bounded = wrap.bounded(table)
    table[3, 11] = -7
    assert bounded[torch.tensor([3]), torch.tensor([40])].tolist() == [-7]
    assert isinstance(bounded, torch.Tensor) and bounded.shape == table.shape
