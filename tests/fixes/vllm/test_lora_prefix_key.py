"""vllm.lora-prefix-key without an engine: which requests get other hashes, and who reads them."""

from __future__ import annotations

import gc
import shlex
import sys
import weakref
from types import ModuleType, SimpleNamespace

import pytest

from attnfix.cli import doctor
from attnfix.compat.doctor.condition import HIT
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.status.fix_state import EFFECTIVE, INSTALLED, OFF, Event, FixState
from attnfix.patches.vllm.lora_prefix_key import wrap
from attnfix.patches.vllm.lora_prefix_key.fix import FIX
from attnfix.patches.vllm.shared.adapter_paths import AdapterPaths
from tests.support import one_call

TARGET = one_call.target_of(FIX, "preprocess_add_request")
ENGINE = """
def _gen_lora_extra_hash_keys(request):
    return [request.lora_request.lora_name] if request.lora_request else []

def generate_block_hash_extra_keys(request):
    return _gen_lora_extra_hash_keys(request) + [request.cache_salt]

def get_request_block_hasher(size):
    def request_block_hasher(request):
        return size, *generate_block_hash_extra_keys(request)
    return request_block_hasher
"""


@pytest.fixture
def utils(monkeypatch):
    monkeypatch.setattr(wrap, "_paths", AdapterPaths())
    module = ModuleType(wrap.UTILS)
    exec(ENGINE, vars(module))
    monkeypatch.setitem(sys.modules, wrap.UTILS, module)
    return module


class Core:
    def __init__(self, hasher, connector=None, events=False):
        self.request_block_hasher = hasher
        transfer = SimpleNamespace(kv_connector=connector) if connector else None
        self.vllm_config = SimpleNamespace(
            kv_transfer_config=transfer, kv_events_config=SimpleNamespace(enable_kv_cache_events=events)
        )

    def preprocess_add_request(self, request):
        request.hasher = self.request_block_hasher
        return request, 0


class Request(SimpleNamespace): ...


def asked(name="tenant", path="/1", salt=None):
    adapter = SimpleNamespace(lora_name=name, lora_path=path, lora_int_id=1) if name else None
    return Request(lora_request=adapter, cache_salt=salt)


def take_in(core, request, state=None):
    """The hashes that the request gets, and how many corrections were counted."""
    state = state or FixState(FIX)
    got, wave = one_call.run(TARGET, Core.preprocess_add_request, state, core, request)
    assert got is request and wave == 0
    return request.hasher and request.hasher(request), state.counters.corrections


def test_an_adapter_is_known_by_name_and_path(utils):
    core = Core(hasher := utils.get_request_block_hasher(16))
    assert take_in(core, asked(salt="tenant"))[0] == (16, ("lora", "tenant", "/1"), "tenant")
    assert take_in(core, asked(path="/2"))[0] == (16, ("lora", "tenant", "/2"), None)
    assert core.request_block_hasher is hasher


def test_requests_count_once_their_adapters_name_has_had_another_path(utils):
    core = Core(utils.get_request_block_hasher(16))
    counts = [
        take_in(core, asked(name, path))[1] for name, path in (("a", "/1"), ("a", "/1"), ("b", "/2"), ("a", "/2"), ("a", "/1"))
    ]
    assert counts == [0, 0, 0, 1, 1]


def test_a_request_that_sees_the_hasher_of_another_thread_keeps_its_hashes(utils):
    hasher = utils.get_request_block_hasher(16)
    assert wrap.with_paths(hasher)(request := asked(name=None, salt="tenant")) == hasher(request)


def test_other_requests_keep_the_engines_function(utils):
    hasher = utils.get_request_block_hasher(16)
    assert take_in(Core(hasher), request := asked(name=None, salt="tenant")) == ((16, "tenant"), 0)
    assert request.hasher is hasher
    assert take_in(Core(None), asked()) == (None, 0)


@pytest.mark.parametrize("more, who", [({"connector": "NixlConnector"}, "NixlConnector"), ({"events": True}, "KV events")])
def test_hashes_that_others_read_stay_and_the_state_says_why(utils, more, who):
    told = []
    state = FixState(FIX, INSTALLED, "code of 0.25.1", lambda state, event, detail: told.append((event, detail)))
    core, hasher = Core(utils.get_request_block_hasher(16), **more), utils.get_request_block_hasher(16)
    for _ in range(2):
        assert take_in(core, asked(), state) == ((16, "tenant", None), 0)
    assert state.as_dict()["state"] == OFF and who in state.as_dict()["reason"]
    assert [event for event, _ in told] == [Event.LEFT_OUT]
    assert take_in(Core(hasher), asked(path="/2"), state)[1] == 0  # another engine of this process
    assert take_in(Core(hasher), asked(path="/3"), state)[1] == 1 and state.state == EFFECTIVE


def test_a_request_ends_with_its_last_reference(utils):
    gc.disable()
    try:
        take_in(Core(utils.get_request_block_hasher(16)), request := asked())
        gone = weakref.ref(request)
        del request
        assert gone() is None
    finally:
        gc.enable()


EVENTS = """--kv-events-config '{"enable_kv_cache_events": %s}'"""


@pytest.mark.parametrize(
    "more, by",
    [("", ""), ("--kv-transfer-config.kv_connector X", "KV connector"), (EVENTS % "true", "KV events"), (EVENTS % "false", "")],
)
def test_doctor_says_where_the_fix_stays_out(more, by):
    line = read(shlex.split(f"VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve m --enable-lora {more}"))
    rows = doctor.examine(Deployment("vllm", config={"model_type": "llama"}, launch=line, environment={}), "0.25.1")
    (row,) = [row for row in rows if row["fix"] == FIX.id]
    assert (row["verdict"], row["corrected"]) == (HIT, not by)
    assert row["attnfix"].startswith(f"leaves it alone: {by}: on" if by else "corrects it")
