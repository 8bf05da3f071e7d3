"""sglang.mamba2-tensor-parallel without an engine: which projections add the parts of ranks."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba2_tensor_parallel import wrap
from attnfix.patches.sglang.mamba2_tensor_parallel.fix import FIX
from tests.support import one_call


class Layer:
    def __init__(self, config, layer_idx, adds=False):
        self.mixer = SimpleNamespace(out_proj=SimpleNamespace(reduce_results=adds))


@pytest.mark.parametrize("ranks, dp, adds, corrections", [
    (2, False, True, 1),
    (8, False, True, 1),
    (1, False, False, 0),
    (2, True, False, 0),
])  # fmt: skip
def test_a_projection_adds_where_ranks_have_parts_of_the_same_tokens(monkeypatch, ranks, dp, adds, corrections):
    groups, launch = ModuleType(wrap._GROUPS), ModuleType("sglang.srt.server_args")
    groups.get_tensor_model_parallel_world_size = lambda: ranks
    launch.get_global_server_args = lambda: SimpleNamespace(enable_dp_attention=dp)
    for module in (groups, launch):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    state, layer = FixState(FIX), object.__new__(Layer)
    one_call.run(FIX.targets[0], Layer.__init__, state, layer, None, 0)
    assert (layer.mixer.out_proj.reduce_results, state.counters.corrections) == (adds, corrections)


def test_one_that_adds_already_is_left_alone(monkeypatch):
    groups = ModuleType(wrap._GROUPS)
    groups.get_tensor_model_parallel_world_size = lambda: 2
    monkeypatch.setitem(sys.modules, groups.__name__, groups)
    state, layer = FixState(FIX), object.__new__(Layer)
    one_call.run(FIX.targets[0], Layer.__init__, state, layer, None, 0, True)
    assert layer.mixer.out_proj.reduce_results and state.counters.corrections == 0
