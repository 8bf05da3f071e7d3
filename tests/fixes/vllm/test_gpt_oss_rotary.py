"""vllm.gpt-oss-rotary without an engine: whose table is written anew, of which bounds, and how often."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.gpt_oss_rotary.fix import FIX
from tests.support import one_call


def yarn_find_correction_dim(rotations, dim, base, longest):
    return rotations + 0.5


def yarn_find_correction_range(low_rot, high_rot, dim, base=1, longest=1):
    low, high = (round(yarn_find_correction_dim(rotations, dim, base, longest)) for rotations in (low_rot, high_rot))
    return max(low, 0), min(high, dim - 1)


class Rotary:
    """A table of its own bounds, which it finds by a function of its module."""

    def __init__(self, low=3.0, high=5.0):
        self.bounds = low, high
        self.cos_sin_cache = self._compute_cos_sin_cache().to(torch.bfloat16)

    def _compute_inv_freq(self, factor):
        return torch.tensor(yarn_find_correction_range(*self.bounds, 8, 1, 1)).float()

    def _compute_cos_sin_cache(self):
        return self._compute_inv_freq(1) * 2


class Layer:
    def __init__(self, config):
        if config.rope_scaling is None:
            raise TypeError("the engine's")
        self.rotary_emb = config.shared


def config(truncate=False, **bounds):
    scaling = {"factor": 32.0} if truncate is None else {"factor": 32.0, "truncate": truncate}
    return SimpleNamespace(rope_scaling=scaling, shared=Rotary(**bounds))


def make(of, layers=1, connector=None, state=None, load_format="auto"):
    state = state or FixState(FIX)
    kv = connector and SimpleNamespace(kv_connector=connector)
    engine = SimpleNamespace(
        _current_vllm_config=SimpleNamespace(kv_transfer_config=kv, load_config=SimpleNamespace(load_format=load_format))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "vllm.config", engine)
        for _ in range(layers):
            one_call.run(one_call.target_of(FIX, "__init__"), Layer.__init__, state, object.__new__(Layer), of)
    return of.shared.cos_sin_cache.tolist(), state.counters.corrections


def test_bounds_are_not_rounded_and_all_layers_share_the_table():
    of = config()
    place = of.shared.cos_sin_cache.data_ptr()
    assert make(of, layers=3) == ([7.0, 11.0], 1) and of.shared.cos_sin_cache.data_ptr() == place
    assert "_compute_inv_freq" not in vars(of.shared) and of.shared.cos_sin_cache.dtype == torch.bfloat16


def test_bounds_lie_within_the_head():
    assert make(config(low=-4.0, high=20.0)) == ([0.0, 14.0], 1)


@pytest.mark.parametrize("truncate", [True, None])
def test_a_checkpoint_that_rounds_is_left_alone(truncate):
    of = config(truncate)
    stock = of.shared.cos_sin_cache.tolist()
    assert make(of) == (stock, 0)


@pytest.mark.parametrize("server", [{"connector": "NixlConnector"}, {"load_format": "tensorizer"}])
def test_a_server_whose_keys_or_tables_others_have_is_left_alone(server):
    of = config()
    stock = of.shared.cos_sin_cache.tolist()
    assert make(of, **server) == (stock, 0)


def test_what_the_engine_raises_passes():
    with pytest.raises(TypeError, match="the engine's"):
        make(SimpleNamespace(rope_scaling=None))
