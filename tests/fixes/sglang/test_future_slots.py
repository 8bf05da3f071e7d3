"""sglang.future-slots without an engine: rings that are long enough are left alone, others get a slot for each part."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.future_slots import wrap
from attnfix.patches.sglang.future_slots.fix import FIX
from tests.support import one_call

TARGET = FIX.targets[0]


def ring(running):
    made = SimpleNamespace(future_limit=3 * running, future_buffer_len=5 * running)
    made.token_ids_buf = torch.zeros(5 * running, dtype=torch.int64)
    return made


def init_overlap(self):
    self.future_map = ring(self.max_running_requests)


class Client:
    """As in 0.5.2, where it has the ring itself."""

    def __init__(self, server_args):
        self.worker = SimpleNamespace(max_running_requests=4, max_total_num_tokens=1000)
        self.future_token_ids_limit, self.future_token_ids_map = 12, torch.zeros(20, dtype=torch.int64)


def launched(chunk, mode="null"):
    return SimpleNamespace(chunked_prefill_size=chunk, disaggregation_mode=mode)


def scheduler(tokens, chunk, overlaps=True, mode="null"):
    made = SimpleNamespace(
        enable_overlap=overlaps, max_running_requests=4, max_total_num_tokens=tokens, server_args=launched(chunk, mode)
    )  # fmt: skip
    state = FixState(FIX)
    one_call.run(TARGET, init_overlap, state, made)
    return made.future_map, state.counters.corrections


def test_a_ring_gets_a_slot_for_each_part_and_room_behind_its_end():
    found, corrections = scheduler(1000, 10)
    assert corrections == 1 and found.future_limit == 2 * 4 + 200
    assert found.future_buffer_len == len(found.token_ids_buf) == found.future_limit + 2 * 4
    assert found.token_ids_buf.dtype == torch.int64


@pytest.mark.parametrize(
    "chunk, overlaps, mode",
    [(None, True, "null"), (-1, True, "null"), (1000, True, "null"), (10, False, "null"), (10, True, "decode")],
)
def test_other_rings_are_left_alone(chunk, overlaps, mode):
    found, corrections = scheduler(1000, chunk, overlaps, mode)
    assert (found.future_limit, len(found.token_ids_buf), corrections) == (12, 20, 0)


@pytest.mark.parametrize("chunk, limit, corrections", [(10, 208, 1), (-1, 12, 0), (None, 12, 0)])
def test_the_ring_of_a_client(chunk, limit, corrections):
    init = FunctionType(Client.__init__.__code__, globals(), "__init__")
    state, client = FixState(FIX), object.__new__(Client)
    one_call.run(TARGET, init, state, client, launched(chunk))
    assert (client.future_token_ids_limit, state.counters.corrections) == (limit, corrections)
    assert len(client.future_token_ids_map) == limit + 2 * 4


def test_a_table_of_drafts_is_made_later():
    made = SimpleNamespace(future_limit=12, future_buffer_len=20)
    wrap.widen(made, 40, 4)
    assert vars(made) == {"future_limit": 40, "future_buffer_len": 48}


@given(st.integers(1, 200), st.integers(0, 10**6), st.integers(1, 8192))
def test_it_is_never_shorter_than_the_engines(running, tokens, chunk):
    found = wrap.slots(running, tokens, chunk)
    assert found == 0 or found > 3 * running
