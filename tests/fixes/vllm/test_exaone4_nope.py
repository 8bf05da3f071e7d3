"""vllm.exaone4-nope without an engine: which layers rotate, what their config says then, and where all stays as it is."""

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
from attnfix.patches.vllm.exaone4_nope.fix import FIX
from attnfix.patches.vllm.exaone4_nope.wrap import MARK
from tests.support import one_call
from tests.support.deployments import MODELS

WINDOW, FULL = "sliding_attention", "full_attention"
MIXED, WITHOUT = (WINDOW, FULL, WINDOW), (FULL, FULL, FULL)


class Layer:
    """A layer as 0.10.1 makes it."""

    def __init__(self, config, hidden_size=8, prefix="0"):
        if hidden_size < 0:
            raise ValueError("the engine's")
        self.apply_all_layers = config.layer_types[int(prefix)] != WINDOW


def made(monkeypatch, kinds=MIXED, size=8, connector=None, folder="", server=True):
    """(whether each layer rotates beside a window, corrections, whether the config says so)"""
    kv, code = connector and SimpleNamespace(kv_connector=connector), SimpleNamespace(cache_dir=folder)
    current = SimpleNamespace(kv_transfer_config=kv, compilation_config=code) if server else None
    monkeypatch.setitem(sys.modules, "vllm.config", SimpleNamespace(_current_vllm_config=current))
    monkeypatch.delitem(sys.modules, "vllm.config.vllm", raising=False)
    state, config, rotated = FixState(FIX), SimpleNamespace(layer_types=list(kinds)), []
    for index in range(len(kinds)):
        layer = object.__new__(Layer)
        one_call.run(one_call.target_of(FIX, "__init__"), Layer.__init__, state, layer, config, size, prefix=str(index))
        rotated.append(layer.apply_all_layers)
    return rotated, state.counters.corrections, hasattr(config, MARK)


@pytest.mark.parametrize("server", [True, False])
def test_full_attention_beside_windows_rotates_nothing(monkeypatch, server):
    assert made(monkeypatch, server=server) == ([False, False, False], 1, True)


def test_a_model_without_windows_rotates_in_each_layer(monkeypatch):
    assert made(monkeypatch, WITHOUT) == ([True, True, True], 0, False)


@pytest.mark.parametrize("of", [{"connector": "NixlConnector"}, {"folder": "/cache"}])
def test_where_others_read_keys_or_name_the_folder_of_code_all_stays(monkeypatch, of):
    assert made(monkeypatch, **of) == ([False, True, False], 0, False)


def test_what_the_engine_raises_passes(monkeypatch):
    with pytest.raises(ValueError, match="the engine's"):
        made(monkeypatch, size=-1)


@pytest.mark.parametrize(
    "more, by",
    [("", ""), ("--kv-transfer-config.kv_connector X", "KV connector"),
     ("--compilation-config.cache_dir /cache", "--compilation")],
)  # fmt: skip
def test_doctor_says_where_the_fix_stays_out(more, by):
    line = read(shlex.split(f"vllm serve m {more}"))
    rows = doctor.examine(Deployment("vllm", config=MODELS["EXAONE-32B"], launch=line, environment={}), "0.10.1.1")
    (row,) = [row for row in rows if row["fix"] == FIX.id]
    assert (row["verdict"], row["corrected"]) == (HIT, not by)
    assert row["attnfix"].startswith(f"leaves it alone: {by}" if by else "corrects it")
