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
STOCK = "0" * 32
LONGROPE = {"rope_type": "longrope", "original_max_position_embeddings": ORIGINAL}


class Rotary:
    def __init__(self, max_position_embeddings, original_max_position_embeddings):
        if max_position_embeddings < 0:
            raise ValueError("the engine's")
        self.max_position_embeddings = max_position_embeddings
        self.original_max_position_embeddings = original_max_position_embeddings
        rows = torch.arange(original_max_position_embeddings + max_position_embeddings)
        self.long_short_cos_sin_cache = rows[:, None].float()


def get_rope(head_size, max_position, rope_scaling=None):
    return Rotary(max_position, (rope_scaling or {}).get("original_max_position_embeddings", ORIGINAL))


def compute_hash():
    return STOCK


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(wrap, "_process", {})


def made(monkeypatch, length, connector=None, longest=LONGEST, rope=LONGROPE, folder="", rotary=None):
    """(rows of the table, the length that `forward` looks beyond, corrections, what code is cached by)."""
    kv = connector and SimpleNamespace(kv_connector=connector)
    parts = {"kv_transfer_config": kv, "compilation_config": SimpleNamespace(cache_dir=folder)}
    config = length and SimpleNamespace(model_config=SimpleNamespace(max_model_len=length), **parts)
    monkeypatch.setitem(sys.modules, "vllm.config", SimpleNamespace(_current_vllm_config=config))
    monkeypatch.delitem(sys.modules, "vllm.config.vllm", raising=False)
    state, hashed = FixState(FIX), FixState(FIX)
    rotary = one_call.run(one_call.target_of(FIX, "get_rope"), rotary or get_rope, state, 64, longest, rope)
    key = one_call.run(one_call.target_of(FIX, "compute_hash"), compute_hash, hashed)
    rows = rotary.long_short_cos_sin_cache[:, 0].tolist()
    return rows, rotary.original_max_position_embeddings, state.counters.corrections, key


BOTH = [float(row) for row in range(ORIGINAL + LONGEST)]


@pytest.mark.parametrize("length", [ORIGINAL + 1, LONGEST])
def test_a_server_of_long_requests_has_the_long_table_alone(monkeypatch, length):
    rows, original, corrections, key = made(monkeypatch, length)
    assert (rows, original, corrections) == (BOTH[ORIGINAL:], LONGEST, 1)
    assert key != STOCK


@pytest.mark.parametrize("length, connector", [(ORIGINAL, None), (1, None), (None, None), (LONGEST, "NixlConnector")])
def test_others_keep_both(monkeypatch, length, connector):
    assert made(monkeypatch, length, connector) == (BOTH, ORIGINAL, 0, STOCK)


@pytest.mark.parametrize("rope", [None, {}, {**LONGROPE, "rope_type": "yarn"}])
def test_other_kinds_of_rotary_embeddings_are_left_alone(monkeypatch, rope):
    assert made(monkeypatch, LONGEST, rope=rope) == (BOTH, ORIGINAL, 0, STOCK)


def test_a_folder_of_compiled_code_that_a_launch_names_leaves_all_as_it_is(monkeypatch):
    assert made(monkeypatch, LONGEST, folder="/cache") == (BOTH, ORIGINAL, 0, STOCK)


def test_layers_share_one_table_which_is_corrected_once(monkeypatch):
    shared = Rotary(LONGEST, ORIGINAL)

    def again(head_size, max_position, rope_scaling=None):
        return shared

    found = [made(monkeypatch, LONGEST, rotary=again) for _ in range(2)]
    assert [rows for rows, *_ in found] == [BOTH[ORIGINAL:]] * 2 and [one[2] for one in found] == [1, 0]


def test_a_model_that_is_no_longer_than_its_original_keeps_both(monkeypatch):
    assert made(monkeypatch, LONGEST, longest=ORIGINAL) == (BOTH[: 2 * ORIGINAL], ORIGINAL, 0, STOCK)


def test_the_long_table_alone_frees_the_short_one(monkeypatch):
    table = torch.zeros(ORIGINAL + LONGEST, 2)
    assert wrap.long_rows(table, ORIGINAL).untyped_storage().size() == LONGEST * 2 * 4


def test_what_the_engine_raises_passes(monkeypatch):
    with pytest.raises(ValueError, match="the engine's"):
        made(monkeypatch, LONGEST, longest=-1)
