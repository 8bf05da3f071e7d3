"""sglang.fa3-cross-lengths without an engine: which batches are laid out anew, what each request gets, what stays."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.fa3_cross_lengths.fix import FIX
from tests.support import one_call
from tests.support.no_sync import NoSync

EAGER = one_call.target_of(FIX, "init_forward_metadata")
REPLAY = one_call.target_of(FIX, "init_forward_metadata_replay_cuda_graph")
TABLE = torch.arange(5 * 12, dtype=torch.int32).view(5, 12)
ROWS, LENS, TEXT = torch.tensor([3, 1, 4]), torch.tensor([2, 0, 7]), 6


class Backend:
    page_size, req_to_token = 1, TABLE

    def __init__(self, **fields):
        vars(self).update(fields)

    def init_forward_metadata(self, forward_batch):
        self.seen = forward_batch
        self.forward_metadata = SimpleNamespace(max_seq_len_k=TEXT, page_table="without encoders")
        return "planned"

    def init_forward_metadata_replay_cuda_graph(
        self, bs, req_pool_indices, seq_lens, seq_lens_sum, encoder_lens, forward_mode, spec_info, seq_lens_cpu
    ):
        self.seen = encoder_lens
        self.forward_metadata = SimpleNamespace(
            max_seq_len_k=TEXT, page_table=torch.full((bs, 12), -1), encoder_page_table=torch.full((bs, 12), -1),
            encoder_lens_int32=torch.zeros(bs).int(), encoder_cu_seqlens_k=torch.zeros(bs + 1).int(),
        )  # fmt: skip
        return "planned"


def batch(rows=ROWS, lens=LENS, spec_info=None):
    pool = SimpleNamespace(req_to_token=TABLE)
    encoder_lens = {"encoder_lens": lens, "encoder_lens_cpu": None if lens is None else lens.tolist()}
    return SimpleNamespace(req_pool_indices=rows, spec_info=spec_info, req_to_token_pool=pool, **encoder_lens)


def eager(backend, forward_batch):
    state = FixState(FIX)
    assert one_call.run(EAGER, Backend.init_forward_metadata, state, backend, forward_batch) == "planned"
    return state


def replay(backend, bs, rows, lens, spec_info=None, texts=None):
    state, target = FixState(FIX), Backend.init_forward_metadata_replay_cuda_graph
    assert one_call.run(REPLAY, target, state, backend, bs, rows, None, 9, lens, "decode", spec_info, texts) == "planned"
    return state


def expected(rows, lens):
    """Rows of the page table behind each encoder; behind the table's end, its last column."""
    return [[int(TABLE[row, min(n + at, 11)]) for at in range(TEXT)] for row, n in zip(rows.tolist(), lens.tolist())]


def test_a_batch_of_several_gets_its_own_encoders():
    backend, given = Backend(), batch()
    with NoSync():
        state = eager(backend, given)
    found = backend.forward_metadata
    assert backend.seen is not given and backend.seen.encoder_lens is None and given.encoder_lens is LENS
    assert found.page_table.tolist() == expected(ROWS, LENS) and found.page_table.dtype == torch.int32
    assert found.encoder_lens_int32.tolist() == [2, 0, 7] and found.encoder_lens_int32.dtype == torch.int32
    assert found.encoder_cu_seqlens_k.tolist() == [0, 2, 2, 9] and found.encoder_cu_seqlens_k.dtype == torch.int32
    assert found.encoder_max_seq_len_k == 7 and torch.equal(found.encoder_page_table, TABLE[ROWS, :7])
    assert (state.counters.corrections, state.counters.rows) == (1, 3)


def test_a_graph_of_several_reads_its_own_encoders_from_the_same_memory():
    backend = Backend()
    state = replay(backend, 3, torch.tensor([3, 1, 4, 0]), torch.tensor([2, 0, 7, 5]))
    found = backend.forward_metadata
    assert backend.seen is None and (state.counters.corrections, state.counters.rows) == (1, 2), "stock is right for the first"
    assert found.page_table[:, :TEXT].tolist() == expected(ROWS, LENS) and bool((found.page_table[:, TEXT:] == -1).all())
    assert found.encoder_page_table[:, :7].tolist() == TABLE[ROWS, :7].tolist()
    assert found.encoder_lens_int32.tolist() == [2, 0, 7] and found.encoder_cu_seqlens_k.tolist() == [0, 2, 2, 9]


@pytest.mark.parametrize(
    "lens, texts, rows",
    [([5, 5, 5], [9, 4, 3], 0), ([5, 5, 7], [9, 4, 1], 0), ([5, 7, 9], [9, 4, 1], 1), ([5, 7, 5], [9, 1, 4], 1),
     ([5, 7, 7], [9, 1, 1], 0), ([5, 7, 7], [1, 1, 1], 0)],
)  # fmt: skip
def test_a_graph_of_encoders_alike_is_right_in_the_engine_and_not_counted(lens, texts, rows):
    """Padding rows, behind all requests, have one token of text, and an encoder's length of earlier batches."""
    state = replay(Backend(), 3, ROWS, torch.tensor(lens), texts=torch.tensor(texts))
    assert (state.counters.corrections, state.counters.rows) == (rows > 0, rows)


@pytest.mark.parametrize(
    "backend, given",
    [(Backend(), batch(lens=None)), (Backend(), batch(ROWS[:1], LENS[:1])), (Backend(page_size=16), batch()),
     (Backend(), batch(spec_info="drafts"))],
    ids=["no encoder", "one request", "larger pages", "drafts"],
)  # fmt: skip
def test_others_pass_untouched(backend, given):
    with NoSync():
        state = eager(backend, given)
    assert backend.seen is given and backend.forward_metadata.page_table == "without encoders"
    assert not state.counters.corrections
    lens = given.encoder_lens
    assert not replay(backend, len(given.req_pool_indices), given.req_pool_indices, lens, given.spec_info).counters.corrections
    assert backend.seen is lens
