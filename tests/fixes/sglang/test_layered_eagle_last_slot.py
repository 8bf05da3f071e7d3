"""sglang.layered-eagle-last-slot without an engine: a buffer with too few rows, and buffers that are left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.layered_eagle_last_slot.fix import FIX
from tests.support import one_call


class Worker(SimpleNamespace):
    def __init__(self, rows, layers, slots):
        pool = SimpleNamespace(size=rows, req_to_token=torch.zeros(slots, 16, dtype=torch.int32))
        buffer = torch.zeros(rows, layers - 1, 8, dtype=torch.bfloat16)
        super().__init__(req_to_hidden_states_pool=buffer, req_to_token_pool=pool, seen=None)


def init_attention_backend(self):
    self.seen = self.req_to_hidden_states_pool


@pytest.mark.parametrize(
    "rows, layers, slots, length, corrections",
    [(4, 3, 5, 5, 1), (4, 2, 13, 13, 1), (4, 3, 4, 4, 0), (5, 3, 5, 5, 0), (4, 1, 5, 4, 0)],
)
def test_a_buffer_gets_a_row_for_each_slot_or_is_left_alone(rows, layers, slots, length, corrections):
    worker, state = Worker(rows, layers, slots), FixState(FIX)
    former = worker.req_to_hidden_states_pool
    one_call.run(one_call.target_of(FIX, "init_attention_backend"), init_attention_backend, state, worker)
    assert state.counters.corrections == corrections and (worker.seen is former) == (not corrections)
    assert worker.seen.shape == (length, layers - 1, 8) and worker.seen.dtype == torch.bfloat16
    assert worker.seen is worker.req_to_hidden_states_pool
