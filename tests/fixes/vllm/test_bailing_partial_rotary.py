"""vllm.bailing-partial-rotary without an engine: what the config says when a layer is made, and where all stays as it is."""

from __future__ import annotations

import shlex
import sys
from types import SimpleNamespace

import pytest

from attnfix.cli import doctor
from attnfix.compat.doctor.condition import HIT
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.bailing_partial_rotary import wrap
from attnfix.patches.vllm.bailing_partial_rotary.fix import FIX
from tests.support import one_call
from tests.support.deployments import MODELS

HEAD, STOCK = 128, "0123456789"


class Layer:
    """A layer as 0.22.1 makes it."""

    def __init__(self, config, cache_config=None):
        self.width = getattr(config, "rotary_dim", HEAD)
        if cache_config == "refused":
            raise ValueError("the engine's")


def compute_hash(self):
    return STOCK


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(wrap._code, "is_changed", False)


def key():
    """What compiled code is cached by."""
    return one_call.run(one_call.target_of(FIX, "compute_hash"), compute_hash, FixState(FIX), None)


def made(monkeypatch, connector=None, folder="", load_format="auto", fuses=False, head=HEAD, server=True, cache=None, **config):
    """(rotated widths of two layers, corrections)"""
    kv = connector and SimpleNamespace(kv_connector=connector)
    code = SimpleNamespace(cache_dir=folder, pass_config=SimpleNamespace(enable_qk_norm_rope_fusion=fuses))
    current = SimpleNamespace(
        kv_transfer_config=kv, compilation_config=code, load_config=SimpleNamespace(load_format=load_format)
    )
    monkeypatch.setitem(sys.modules, "vllm.config.vllm", SimpleNamespace(_current_vllm_config=current if server else None))
    state, layers = FixState(FIX), [object.__new__(Layer) for _ in range(2)]
    given = SimpleNamespace(head_dim=head, hidden_size=2048, num_attention_heads=16, **config)
    for layer in layers:
        one_call.run(one_call.target_of(FIX, "__init__"), Layer.__init__, state, layer, given, cache)
    return [layer.width for layer in layers], state.counters.corrections


@pytest.mark.parametrize("server", [True, False])
@pytest.mark.parametrize("head, factor, width", [(HEAD, 0.5, 64), (HEAD, 0.25, 32), (None, 0.75, 96)])
def test_all_layers_rotate_what_the_factor_says(monkeypatch, server, head, factor, width):
    assert made(monkeypatch, head=head, server=server, partial_rotary_factor=factor) == ([width] * 2, 1)
    assert key() != STOCK and len(key()) == len(STOCK)


def test_a_factor_among_the_settings_of_rope_is_read(monkeypatch):
    moved = {"rope_theta": 6e5, "partial_rotary_factor": 0.5}
    assert made(monkeypatch, rope_parameters=moved) == ([64] * 2, 1)
    assert made(monkeypatch, rope_parameters=moved, partial_rotary_factor=None) == ([64] * 2, 1)
    assert made(monkeypatch, rope_parameters={"partial_rotary_factor": 1.0}) == ([HEAD] * 2, 0)  # as the engine leaves it
    assert made(monkeypatch, rope_parameters={"partial_rotary_factor": 0.5}, partial_rotary_factor=1.0) == ([HEAD] * 2, 0)
    assert made(monkeypatch, rope_parameters=None) == ([HEAD] * 2, 0)


class Reading(Layer):
    """A layer as 0.23.0 makes it."""

    def __init__(self, config, cache_config=None):
        partial_rotary_factor = getattr(config, "partial_rotary_factor", 1.0)
        self.width = getattr(config, "rotary_dim", None) or int(HEAD * partial_rotary_factor)


@pytest.mark.parametrize(
    ("config", "width", "corrections"),
    [
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, 64, 1),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}, "partial_rotary_factor": 0.5}, 64, 0),
        ({"partial_rotary_factor": 0.25}, 32, 0),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}, "rotary_dim": 32}, 32, 0),
        ({"rope_parameters": {}}, HEAD, 0),
    ],
)
def test_a_layer_that_reads_the_factor_is_corrected_where_it_is_among_the_settings_of_rope_alone(
    monkeypatch, config, width, corrections
):
    monkeypatch.setattr(sys.modules[__name__], "Layer", Reading)
    assert made(monkeypatch, **config) == ([width] * 2, corrections)
    assert (key() != STOCK) == corrections


@pytest.mark.parametrize("factor", [1.0, 0, 0.0, None, 1.5, -0.5, 0.001])
def test_a_factor_that_names_no_part_of_a_head_is_left_alone(monkeypatch, factor):
    assert made(monkeypatch, partial_rotary_factor=factor) == ([HEAD] * 2, 0)


def test_a_width_that_has_a_name_stays(monkeypatch):
    assert made(monkeypatch, rotary_dim=64) == ([64] * 2, 0)
    assert made(monkeypatch, rotary_dim=32, partial_rotary_factor=0.5) == ([32] * 2, 0)


@pytest.mark.parametrize(
    "of", [{"connector": "NixlConnector"}, {"folder": "/cache"}, {"load_format": "tensorizer"}, {"fuses": True}]
)
def test_where_others_read_keys_tables_or_code_all_stays(monkeypatch, of):
    assert made(monkeypatch, partial_rotary_factor=0.5, **of) == ([HEAD] * 2, 0)
    assert key() == STOCK


def test_what_the_engine_raises_passes(monkeypatch):
    with pytest.raises(ValueError, match="the engine's"):
        made(monkeypatch, partial_rotary_factor=0.5, cache="refused")


@pytest.mark.parametrize(
    "more, by",
    [("", ""), ("--kv-transfer-config.kv_connector X", "KV connector"), ("--load-format tensorizer", "--load-format"),
     ("--compilation-config.cache_dir /cache", "--compilation-config.cache_dir"),
     ("-cc.pass_config.enable_qk_norm_rope_fusion=true", "--compilation-config.pass_config.enable_qk_norm_rope_fusion")],
)  # fmt: skip
def test_doctor_says_where_the_fix_stays_out(more, by):
    line = read(shlex.split(f"vllm serve m {more}"))
    rows = doctor.examine(Deployment("vllm", config=MODELS["Ling-flash"], launch=line, environment={}), "0.22.1")
    (row,) = [row for row in rows if row["fix"] == FIX.id]
    assert (row["verdict"], row["corrected"]) == (HIT, not by)
    assert row["attnfix"].startswith(f"leaves it alone: {by}" if by else "corrects it")
