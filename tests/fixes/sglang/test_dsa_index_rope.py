"""sglang.dsa-index-rope without an engine: which indexers get the other style, and that attention keeps its own."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.dsa_index_rope.fix import FIX
from tests.support import one_call


def get_rope_wrapper(head_size, *, is_neox_style):
    if head_size is None:
        raise TypeError("the engine's")
    return SimpleNamespace(head_size=head_size, is_neox_style=is_neox_style)


class Indexer:
    def __init__(self, head_size):
        self.rotary_emb = get_rope_wrapper(head_size, is_neox_style=False)


def made(head_size=64, cuda=True, mode="null", early=False):
    """(the indexer's rotary embedding, corrections) on a server of that mode; 0.5.3 has its arguments in a dictionary."""
    args = {"disaggregation_mode": mode}
    asked = {"global_server_args_dict": args} if early else {"get_global_server_args": lambda: SimpleNamespace(**args)}
    names = {**globals(), "is_cuda": lambda: cuda, **asked}
    init, state, indexer = FunctionType(Indexer.__init__.__code__, names, "__init__"), FixState(FIX), object.__new__(Indexer)
    one_call.run(one_call.target_of(FIX, "__init__"), init, state, indexer, head_size)
    return indexer.rotary_emb, state.counters.corrections


@pytest.mark.parametrize("early", [True, False])
def test_an_indexer_is_rotated_by_halves(early):
    assert made(early=early) == (SimpleNamespace(head_size=64, is_neox_style=True), 1)


@pytest.mark.parametrize(
    "server", [{"cuda": False}, {"mode": "prefill"}, {"mode": "decode", "early": True}, {"cuda": False, "mode": "decode"}]
)
def test_other_devices_and_servers_whose_keys_others_read_are_left_alone(server):
    rotary, corrections = made(**server)
    assert (rotary.is_neox_style, corrections) == (False, 0)


def test_attention_keeps_its_own():
    made()
    assert get_rope_wrapper(64, is_neox_style=False).is_neox_style is False


def test_what_the_engine_raises_passes():
    with pytest.raises(TypeError, match="the engine's"):
        made(head_size=None)
