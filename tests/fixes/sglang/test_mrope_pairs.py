"""sglang.mrope-pairs without an engine: which layers rotate by the engine's code in torch."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mrope_pairs import wrap
from attnfix.patches.sglang.mrope_pairs.fix import FIX
from tests.support import one_call


class Layer:
    def __init__(self, head_size, is_neox_style):
        self.is_neox_style = is_neox_style

    def forward(self):
        return self._forward_triton()

    def _forward_triton(self):
        return "halves"

    def _forward_native(self):
        return "halves" if self.is_neox_style else "neighbours"


@pytest.mark.parametrize("halves, cuda, rotated, corrections", [
    (False, True, "neighbours", 1),
    (True, True, "halves", 0),
    (False, False, "halves", 0),
])  # fmt: skip
def test_a_layer_rotates_what_its_model_says(monkeypatch, halves, cuda, rotated, corrections):
    module, state = ModuleType(wrap.ROTARY), FixState(FIX)
    module._is_cuda = cuda
    monkeypatch.setitem(sys.modules, wrap.ROTARY, module)
    layer = object.__new__(Layer)
    one_call.run(FIX.targets[0], Layer.__init__, state, layer, 64, halves)
    assert layer.forward() == rotated and state.counters.corrections == corrections
