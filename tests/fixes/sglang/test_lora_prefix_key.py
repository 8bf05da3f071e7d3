"""sglang.lora-prefix-key without an engine: which requests get other keys, and who reads them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from attnfix.compat.arming import serving_failure
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.lora_prefix_key import wrap
from attnfix.patches.sglang.lora_prefix_key.fix import FIX
from attnfix.patches.sglang.shared import launch
from tests.support import one_call

TARGET = one_call.target_of(FIX, "__init__")
LORA = SimpleNamespace(enable_lora=True)
ID = "0123456789abcdef" * 2
CONTEXT = "sglang.srt.runtime_context"


class Req:
    def __init__(self, rid, lora_id=None, extra_key=None):
        if lora_id is not None:
            extra_key = (extra_key or "") + lora_id
        self.extra_key = extra_key


def key(adapter, extra_key, args=LORA, state=None, asks=("sglang.srt.server_args", "get_global_server_args")):
    """The key that the request has, and how many corrections were counted. `asks`: how the release says its arguments."""
    state = state or FixState(FIX)
    if asks:
        sys.modules[asks[0]] = SimpleNamespace(**{asks[1]: lambda: args})
    one_call.run(TARGET, Req.__init__, state, request := object.__new__(Req), "r", adapter, extra_key)
    return request.extra_key, state.counters.corrections


@pytest.fixture(autouse=True)
def no_engine(monkeypatch):
    for module in ("sglang.srt.server_args", "sglang.srt.runtime_context"):
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize("sent", [ID, "tenant" + ID, ID + "\0", ID + "\0\0"])
def test_no_request_without_an_adapter_has_the_key_of_one(sent):
    assert key(None, sent) == (sent + "\0", 1)
    assert key(ID, sent) == (sent + ID, 0)


@pytest.mark.parametrize("sent", [None, "", "tenant", ID[1:], ID + ".", ID + "\n", ID.upper(), ID[1:] + "\0", "\0", 7])
def test_other_keys_stay(sent):
    assert key(None, sent) == (sent, 0)


def test_different_keys_stay_different():
    sent = [ID + "\0" * nuls for nuls in range(4)] + [ID[1:], "x" + ID]
    assert len({key(None, one)[0] for one in sent}) == len(sent)


@pytest.mark.parametrize("args, corrections", [({}, 0), ({"enable_lora": False}, 0), ({"lora_paths": ["a=/1"]}, 1)])
def test_servers_without_adapters_keep_their_keys(args, corrections):
    assert key(None, ID, SimpleNamespace(**args))[1] == corrections


def test_how_the_server_was_launched_is_asked_in_each_release():
    assert key(None, ID, asks=None)[1] == 1  # 0.5.3: nobody says
    asks = "sglang.srt.runtime_context", "get_server_args"
    assert key(None, ID, SimpleNamespace(enable_lora=False), asks=asks)[1] == 0


@pytest.mark.parametrize("error, armed", [(MemoryError, True), (ValueError, False)])
def test_no_rank_alone_looks_for_another_key_and_want_of_memory_is_that_of_one_request(monkeypatch, error, armed):
    def raises():
        raise error

    monkeypatch.setattr(launch, "server_args", raises)
    monkeypatch.setattr(serving_failure, "_rank", lambda: "rank 1 of 2")
    state = FixState(FIX)
    init = one_call.wrapper(TARGET, Req.__init__, state).function
    with pytest.raises(error):
        init(object.__new__(Req), "r", None, ID)
    assert state.armed == armed


@pytest.mark.parametrize("reader, who", {**wrap._READERS, **launch._READERS}.items())
def test_keys_that_others_read_stay_and_the_state_says_why(reader, who):
    state = FixState(FIX)
    args = SimpleNamespace(enable_lora=True, **{reader: "file"})
    assert key(None, ID, args, state) == (ID, 0)
    assert f"{who} reads" in state.as_dict()["reason"]
