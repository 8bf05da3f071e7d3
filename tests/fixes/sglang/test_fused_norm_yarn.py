"""sglang.fused-norm-yarn without an engine: which layers get another length, and what their config is left with."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.fused_norm_yarn.fix import FIX
from tests.support import one_call

_is_cuda = True
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


class Layer:
    def __init__(self, hidden_size, config=None):
        self.config, self.use_fused_qk_norm_rope = config, hidden_size > 0
        if hidden_size < 0:
            raise ValueError("the engine's")


def made(monkeypatch, rope, hidden_size=64, name="rope_parameters", longest=40960, **flags):
    """(the length that the layer's kernel reads, how many corrections were counted)"""
    given = {"disaggregation_mode": "null", "enable_fused_qk_norm_rope": True, **flags}
    module = ModuleType("sglang.srt.server_args")
    module.get_global_server_args = lambda: SimpleNamespace(**given)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    config = SimpleNamespace(max_position_embeddings=longest, **{name: rope})
    state, layer = FixState(FIX), object.__new__(Layer)
    one_call.run(FIX.targets[0], Layer.__init__, state, layer, hidden_size, config=config)
    assert config.max_position_embeddings == longest and state.armed
    return layer.config.max_position_embeddings, state.counters.corrections


@pytest.mark.parametrize("name", ["rope_parameters", "rope_scaling"])
def test_the_length_is_what_the_factor_asks_for(monkeypatch, name):
    assert made(monkeypatch, YARN, name=name) == (131072, 1)


def test_so_is_it_of_older_config_files(monkeypatch):
    assert made(monkeypatch, {**YARN, "rope_type": None, "type": "yarn"}) == (131072, 1)


def test_a_layer_whose_kernel_does_not_run_counts_none(monkeypatch):
    assert made(monkeypatch, YARN, hidden_size=0)[1] == 0


@pytest.mark.parametrize("rope", [
    None, {}, {"rope_type": "default"}, {**YARN, "rope_type": "linear"}, {**YARN, "factor": 1.25},
    {**YARN, "original_max_position_embeddings": None},
])  # fmt: skip
def test_other_settings_are_left_alone(monkeypatch, rope):
    assert made(monkeypatch, rope) == (40960, 0)


@pytest.mark.parametrize("flags", [
    {"enable_fused_qk_norm_rope": False}, {"disaggregation_mode": "prefill"}, {"enable_lmcache": True},
])  # fmt: skip
def test_so_are_servers_without_the_kernel_and_those_whose_keys_others_share(monkeypatch, flags):
    assert made(monkeypatch, YARN, **flags) == (40960, 0)


def test_so_are_other_gpus(monkeypatch):
    monkeypatch.setitem(globals(), "_is_cuda", False)
    assert made(monkeypatch, YARN) == (40960, 0)


def test_so_is_a_layer_without_a_config():
    state, layer = FixState(FIX), object.__new__(Layer)
    one_call.run(FIX.targets[0], Layer.__init__, state, layer, 64)
    assert state.armed and state.counters.corrections == 0


def test_an_error_of_the_engine_is_the_engines(monkeypatch):
    with pytest.raises(ValueError, match="the engine's"):
        made(monkeypatch, YARN, hidden_size=-1)
