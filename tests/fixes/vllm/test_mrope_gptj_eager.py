"""vllm.mrope-gptj-eager without an engine: which embeddings rotate in torch, and where all stays as it is."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.mrope_gptj_eager import wrap
from attnfix.patches.vllm.mrope_gptj_eager.fix import FIX
from tests.support import one_call

STOCK = "0123456789"


class MRotaryEmbedding:
    """One of a release whose custom ops choose among these, as `runs` says."""

    runs = "forward_cuda"

    def __init__(self, head_size, is_neox_style):
        if head_size == 0:
            raise ValueError("the engine's")
        self.is_neox_style = is_neox_style
        self._forward_method = getattr(self, self.runs)

    def forward(self):
        return self._forward_method()

    def forward_cuda(self):
        return "halves"

    def forward_hip(self):
        return "halves"

    def forward_native(self):
        return "halves" if self.is_neox_style else "neighbours"


class Early(MRotaryEmbedding):
    """As of 0.10.1, which asks for its platform alone."""

    runs = "forward_native"

    def __init__(self, head_size, is_neox_style):
        super().__init__(head_size, is_neox_style)
        self.use_triton = True

    def forward(self):
        return self.forward_cuda() if self.use_triton else self.forward_native()


Early.__name__ = "MRotaryEmbedding"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(wrap._code, "is_changed", False)


def made(monkeypatch, halves=False, kind=MRotaryEmbedding, runs=None, connector=None, folder="", server=True, head=64):
    """(what an embedding turns, corrections)"""
    if runs:
        monkeypatch.setattr(kind, "runs", runs)
    kv = connector and SimpleNamespace(kv_connector=connector)
    current = SimpleNamespace(kv_transfer_config=kv, compilation_config=SimpleNamespace(cache_dir=folder))
    monkeypatch.setitem(sys.modules, "vllm.config.vllm", SimpleNamespace(_current_vllm_config=current if server else None))
    state, layer = FixState(FIX), object.__new__(kind)
    one_call.run(one_call.target_of(FIX, "__init__"), kind.__init__, state, layer, head, halves)
    return layer.forward(), state.counters.corrections


def key():
    """What compiled code is cached by."""

    def compute_hash(self):
        return STOCK

    return one_call.run(one_call.target_of(FIX, "compute_hash"), compute_hash, FixState(FIX), None)


@pytest.mark.parametrize("of", [{}, {"runs": "forward_hip"}, {"kind": Early}, {"server": False}])
def test_neighbours_are_turned(monkeypatch, of):
    assert made(monkeypatch, **of) == ("neighbours", 1)
    assert key() != STOCK and len(key()) == len(STOCK)


@pytest.mark.parametrize("of, turned", [
    ({"halves": True}, "halves"), ({"halves": True, "kind": Early}, "halves"), ({"runs": "forward_native"}, "neighbours"),
    ({"connector": "NixlConnector"}, "halves"), ({"folder": "/cache"}, "halves"),
    ({"kind": type("MRotaryEmbeddingInterleaved", (MRotaryEmbedding,), {})}, "halves"),
])  # fmt: skip
def test_all_others_stay(monkeypatch, of, turned):
    assert made(monkeypatch, **of) == (turned, 0) and key() == STOCK


def test_what_the_engine_raises_passes(monkeypatch):
    with pytest.raises(ValueError, match="the engine's"):
        made(monkeypatch, head=0)
