"""vllm.bailing-mla-rotary without an engine: what a layer of MLA is made of, and where all stays as it is."""

from __future__ import annotations

import shlex
import sys
from types import ModuleType, SimpleNamespace

import pytest

from attnfix.cli import doctor
from attnfix.compat.doctor.condition import HIT
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.bailing_mla_rotary import wrap
from attnfix.patches.vllm.bailing_mla_rotary.fix import FIX
from tests.support import one_call
from tests.support.deployments import MODELS

ENGINE = """
def _build_rope_parameters(config):
    return dict(config.rope_parameters) or None

class Layer:
    def __init__(self, config, layer_id=0):
        if layer_id < 0:
            raise ValueError("the engine's")
        self.rope = _build_rope_parameters(config)
"""
STOCK = "0123456789"
ROPE = {"rope_theta": 6e6, "partial_rotary_factor": 0.5}


def compute_hash(self):
    return STOCK


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(wrap._code, "is_changed", False)


def made(monkeypatch, rope=ROPE, layer=3, connector=None, folder="", load_format="auto", server=True):
    """(the settings of the layer, corrections, whether compiled code has an entry of its own)"""
    current = SimpleNamespace(
        kv_transfer_config=connector and SimpleNamespace(kv_connector=connector),
        compilation_config=SimpleNamespace(cache_dir=folder), load_config=SimpleNamespace(load_format=load_format),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "vllm.config.vllm", SimpleNamespace(_current_vllm_config=current if server else None))
    engine = ModuleType("engine")
    exec(ENGINE, vars(engine))
    state, config, instance = FixState(FIX), SimpleNamespace(rope_parameters=rope), object.__new__(engine.Layer)
    one_call.run(one_call.target_of(FIX, "__init__"), engine.Layer.__init__, state, instance, config, layer)
    assert config.rope_parameters is rope
    key = one_call.run(one_call.target_of(FIX, "compute_hash"), compute_hash, FixState(FIX), None)
    assert len(key) == len(STOCK)
    return instance.rope, state.counters.corrections, key != STOCK


@pytest.mark.parametrize("server", [True, False])
@pytest.mark.parametrize("factor", [0.5, 0.25])
def test_a_layer_of_mla_is_made_with_a_factor_of_one(monkeypatch, factor, server):
    rope = {**ROPE, "partial_rotary_factor": factor}
    assert made(monkeypatch, rope, server=server) == ({**ROPE, "partial_rotary_factor": 1.0}, 1, True)


@pytest.mark.parametrize("rope", [{}, {"rope_theta": 6e6}, {**ROPE, "partial_rotary_factor": 1.0}])
def test_without_a_factor_all_stays(monkeypatch, rope):
    assert made(monkeypatch, rope) == (rope or None, 0, False)


@pytest.mark.parametrize("of", [{"connector": "NixlConnector"}, {"folder": "/cache"}, {"load_format": "tensorizer"}])
def test_where_others_read_keys_tables_or_code_all_stays(monkeypatch, of):
    assert made(monkeypatch, **of) == (ROPE, 0, False)


def test_what_the_engine_raises_passes(monkeypatch):
    with pytest.raises(ValueError, match="the engine's"):
        made(monkeypatch, layer=-1)


@pytest.mark.parametrize(
    "more, by",
    [("", ""), ("--kv-transfer-config.kv_connector X", "KV connector"), ("--load-format tensorizer", "--load-format"),
     ("--compilation-config.cache_dir /cache", "--compilation-config.cache_dir")],
)  # fmt: skip
def test_doctor_says_where_the_fix_stays_out(more, by):
    line = read(shlex.split(f"vllm serve m {more}"))
    rows = doctor.examine(Deployment("vllm", config=MODELS["Ling-2.6"], launch=line, environment={}), "0.20.0")
    (row,) = [row for row in rows if row["fix"] == FIX.id]
    assert (row["verdict"], row["corrected"]) == (HIT, not by)
    assert row["attnfix"].startswith(f"leaves it alone: {by}" if by else "corrects it")
