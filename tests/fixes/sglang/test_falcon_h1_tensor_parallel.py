"""sglang.falcon-h1-tensor-parallel without an engine: which projections of Mamba2 keep a rank's part."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.falcon_h1_tensor_parallel.fix import FIX
from tests.support import one_call


class Layer:
    def __init__(self, ranks, attending, adds, attention_adds):
        self.attn_tp_size, self.o_proj = attending, SimpleNamespace(reduce_results=attention_adds)
        self.mamba = SimpleNamespace(out_proj=SimpleNamespace(tp_size=ranks, reduce_results=adds))


@pytest.mark.parametrize("ranks, attending, adds, attention_adds, kept", [
    (2, 2, True, False, True),
    (8, 8, True, False, True),
    (1, 1, True, False, False),
    (8, 2, True, False, False),  # groups of ranks have tokens of their own
    (2, 2, False, False, False),
    (2, 2, True, True, False),
])  # fmt: skip
def test_a_projection_keeps_its_part_where_the_layer_adds(ranks, attending, adds, attention_adds, kept):
    state, layer = FixState(FIX), object.__new__(Layer)
    one_call.run(FIX.targets[0], Layer.__init__, state, layer, ranks, attending, adds, attention_adds)
    assert (layer.mamba.out_proj.reduce_results, state.counters.corrections) == (adds and not kept, int(kept))
