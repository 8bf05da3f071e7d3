"""vllm.longrope-switch without an engine: whose table becomes the long one alone, and what its compiled code is cached by."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.longrope_switch import wrap
from attnfix.patches.vllm.longrope_switch.fix import FIX
from tests.support import one_call

ORIGINAL, LONGEST = 4, 12


class Rotary:
    def __init__(self, max_position_embeddings, original_max_position_embeddings):
        if max_position_embeddings < 0:
            raise ValueError("the engine's")
        self.max_position_embeddings = max_position_embeddings
        self.original_max_position_embeddings = original_max_position_embeddings
        rows = torch.arange(original_max_position_embeddings + max_position_embeddings)
        self.long_short_cos_sin_cache = rows[:, None].float()


class Config:
    def compute_hash(self):
        return "0123456789"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(wrap, "_long_alone", {})


def made(monkeypatch, length, connector=None, longest=LONGEST):
    """(rows of the table, the length that `forward` looks beyond, corrections, what code is cached by)."""
    kv = connector and SimpleNamespace(kv_connector=connector)
    config = length and SimpleNamespace(model_config=SimpleNamespace(max_model_len=length), kv_transfer_config=kv)
    monkeypatch.setitem(sys.modules, "vllm.config", SimpleNamespace(_current_vllm_config=config))
    rotary, state, hashed = object.__new__(Rotary), FixState(FIX), FixState(FIX)
    one_call.run(one_call.target_of(FIX, "__init__"), Rotary.__init__, state, rotary, longest, ORIGINAL)
    key = one_call.run(one_call.target_of(FIX, "compute_hash"), Config.compute_hash, hashed, Config())
    rows = rotary.long_short_cos_sin_cache[:, 0].tolist()
    return rows, rotary.original_max_position_embeddings, state.counters.corrections, key


BOTH = [float(row) for row in range(ORIGINAL + LONGEST)]


@pytest.mark.parametrize("length", [ORIGINAL + 1, LONGEST])
def test_a_server_of_long_requests_has_the_long_table_alone(monkeypatch, length):
    rows, original, corrections, key = made(monkeypatch, length)
    assert (rows, original, corrections) == (BOTH[ORIGINAL:], LONGEST, 1)
    assert key != Config().compute_hash() and len(key) == len(Config().compute_hash())


@pytest.mark.parametrize("length, connector", [(ORIGINAL, None), (1, None), (None, None), (LONGEST, "NixlConnector")])
def test_others_keep_both(monkeypatch, length, connector):
    assert made(monkeypatch, length, connector) == (BOTH, ORIGINAL, 0, "0123456789")


def test_a_model_that_is_no_longer_than_its_original_keeps_both(monkeypatch):
    assert made(monkeypatch, LONGEST, longest=ORIGINAL) == (BOTH[: 2 * ORIGINAL], ORIGINAL, 0, "0123456789")


def test_the_long_table_alone_frees_the_short_one(monkeypatch):
    table = torch.zeros(ORIGINAL + LONGEST, 2)
    assert wrap.long_rows(table, ORIGINAL).untyped_storage().size() == LONGEST * 2 * 4


def test_what_the_engine_raises_passes(monkeypatch):
    with pytest.raises(ValueError, match="the engine's"):
        made(monkeypatch, LONGEST, longest=-1)
