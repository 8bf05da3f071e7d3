"""vllm.tower-lora-encoder-cache without an engine: the names of images."""

from __future__ import annotations

import shlex
from types import SimpleNamespace

import pytest

from attnfix.cli import doctor
from attnfix.compat.doctor.condition import HIT
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.shared.adapter_paths import AdapterPaths
from attnfix.patches.vllm.tower_lora_encoder_cache import wrap
from attnfix.patches.vllm.tower_lora_encoder_cache.fix import FIX
from tests.support import one_call


def identifier(self, mm_hash, lora_request):
    return f"{lora_request.lora_name}:{mm_hash}" if lora_request else mm_hash


def names(*adapters, tower=True, **config):
    """Names of one image, and the corrections."""
    given = dict(ec_transfer_config=None, kv_transfer_config=None, kv_events_config=None) | config
    processor = SimpleNamespace(
        lora_config=SimpleNamespace(enable_tower_connector_lora=tower), vllm_config=SimpleNamespace(**given)
    )
    state, target = FixState(FIX), one_call.target_of(FIX, "_get_mm_identifier")
    found = [one_call.run(target, identifier, state, processor, "image", adapter) for adapter in adapters]
    return found, state.counters.corrections


def adapter(path, name="tenant"):
    return SimpleNamespace(lora_name=name, lora_path=path)


@pytest.fixture(autouse=True)
def _no_paths(monkeypatch):
    monkeypatch.setattr(wrap, "_paths", AdapterPaths())


def test_another_path_is_another_name():
    first, again, second, third = names(adapter("/1"), adapter("/1"), adapter("/2"), adapter("/1"))[0]
    assert first == again == third != second
    assert names(adapter("/1"), adapter("/1"))[1] == 2  # of a name that has had several
    assert names(adapter("/1", "other"), adapter("/1", "other"))[1] == 0


@pytest.mark.parametrize("config", [
    {"tower": False}, {"ec_transfer_config": SimpleNamespace(ec_connector="x")},
    {"kv_transfer_config": SimpleNamespace(kv_connector="x")},
    {"kv_events_config": SimpleNamespace(enable_kv_cache_events=True)},
])  # fmt: skip
def test_names_that_stay(config):
    assert names(adapter("/1"), adapter("/2"), None, **config) == (["tenant:image", "tenant:image", "image"], 0)


@pytest.mark.parametrize(
    "more, by",
    [("", ""), ("--kv-transfer-config.kv_connector X", "KV connector"),
     ("--ec-transfer-config '{\"ec_connector\": \"X\"}'", "EC connector"),
     ("--kv-events-config '{\"enable_kv_cache_events\": false}'", ""),
     ("--kv-events-config '{\"enable_kv_cache_events\": true}'", "KV events")],
)  # fmt: skip
def test_doctor_says_where_the_fix_stays_out(more, by):
    line = read(shlex.split(f"vllm serve m --enable-lora --enable-tower-connector-lora {more}"))
    environment = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "ATTNFIX_VLLM_TOWER_LORA_ENCODER_CACHE": "1"}
    rows = doctor.examine(Deployment("vllm", launch=line, environment=environment), "0.33.0")
    (row,) = [row for row in rows if row["fix"] == FIX.id]
    assert row["verdict"] == HIT
    assert row["attnfix"].startswith(f"leaves it alone: {by}") if by else not row["attnfix"].startswith("leaves it alone")
