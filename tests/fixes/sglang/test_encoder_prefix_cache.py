"""sglang.encoder-prefix-cache without an engine: which servers keep their cached prefixes and chunks."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace

import pytest

from attnfix.compat.doctor import sglang as doctor
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.encoder_prefix_cache.fix import FIX
from attnfix.patches.sglang.encoder_prefix_cache.wrap import ENCODERS
from tests.support import one_call


class CacheAwarePolicy(Enum):
    LPM = "lpm"


class CacheAgnosticPolicy(Enum):
    FCFS = "fcfs"
    LOF = "lof"


class SchedulePolicy:
    """In the module of its kinds, as the engine's."""

    def __init__(self, policy):
        self.policy = policy


def handle_embedding_request(self, recv_req):
    self.queue.append(recv_req)


def server(
    *architectures,
    tree="RadixCache",
    disable=False,
    chunk=64,
    limit=256,
    cached=0,
    cut=None,
    order=CacheAgnosticPolicy.FCFS,
    **more,
):
    kind = type(tree, (), {"evictable_size": lambda self: cached, "protected_size": lambda self: 0})
    tree = kind()
    vars(tree).update({"disable": disable} | more)
    model = SimpleNamespace(hf_config=SimpleNamespace(architectures=list(architectures) or None))
    return SimpleNamespace(
        tree_cache=tree, chunked_prefill_size=chunk, max_prefill_tokens=limit, chunked_req=cut, model_config=model, queue=[],
        policy=SchedulePolicy(order),
    )  # fmt: skip


def test_the_doctor_tells_of_the_same_models():
    assert set(doctor.ENCODERS) == ENCODERS


def asked(server, texts=2):
    """How many corrections of that many texts were counted, and what the fix says."""
    state = FixState(FIX)
    for text in range(texts):
        one_call.run(FIX.targets[0], handle_embedding_request, state, server, text)
    assert server.queue == list(range(texts))
    return state.counters.corrections, state.as_dict().get("reason")


@pytest.mark.parametrize("architecture", sorted(ENCODERS))
@pytest.mark.parametrize("tree", ["RadixCache", "UnifiedRadixCache"])
def test_an_encoder_switches_both_off_with_its_first_text(architecture, tree):
    encoder = server(architecture, tree=tree, cache_controller=None, linker=None)
    assert asked(encoder)[0] == 1
    assert encoder.tree_cache.disable and encoder.chunked_prefill_size is None and encoder.max_prefill_tokens == 65


def test_a_tree_that_is_off_stays_a_tree():
    encoder = server("BertModel", tree="UnifiedRadixCache")
    type(encoder.tree_cache).is_chunk_cache = lambda self: self.disable
    assert asked(encoder)[0] == 1
    assert encoder.tree_cache.disable and not encoder.tree_cache.is_chunk_cache()


@pytest.mark.parametrize("given, order, then", [
    ({}, CacheAwarePolicy.LPM, CacheAgnosticPolicy.FCFS), ({}, CacheAgnosticPolicy.LOF, CacheAgnosticPolicy.LOF),
    ({"disable": True}, CacheAwarePolicy.LPM, CacheAwarePolicy.LPM),
])  # fmt: skip
def test_no_text_waits_for_a_prefix_that_is_never_cached(given, order, then):
    encoder = server("BertModel", order=order, **given)
    assert asked(encoder)[0] == 1 and encoder.policy.policy is then


@pytest.mark.parametrize("given, limit", [
    ({"disable": True}, 65), ({"chunk": None}, 256), ({"chunk": 512}, 256), ({"disable": True, "tree": "ChunkCache"}, 65),
])  # fmt: skip
def test_what_is_off_stays_off(given, limit):
    encoder = server("BertModel", **given)
    assert asked(encoder)[0] == 1
    assert encoder.tree_cache.disable and encoder.chunked_prefill_size is None and encoder.max_prefill_tokens == limit


@pytest.mark.parametrize("architectures", [("MistralModel",), ("Qwen3ForCausalLM",), ("Gemma3TextModel",), ()])
def test_decoders_keep_both(architectures):
    decoder = server(*architectures)
    assert asked(decoder)[0] == 0
    assert not decoder.tree_cache.disable and (decoder.chunked_prefill_size, decoder.max_prefill_tokens) == (64, 256)


@pytest.mark.parametrize("given, why", [
    ({"tree": "HiRadixCache"}, "HiCache"), ({"tree": "RadixCacheCpp"}, "special"), ({"cache_controller": 1}, "HiCache"),
    ({"linker": 1}, "special"), ({"cached": 3}, "before the fix"), ({"cut": 1}, "before the fix"),
])  # fmt: skip
def test_other_servers_stay_as_they_are_and_the_state_says_why(given, why):
    encoder = server("BertModel", **given)
    corrections, reason = asked(encoder)
    assert corrections == 0 and why in reason
    assert not encoder.tree_cache.disable and (encoder.chunked_prefill_size, encoder.max_prefill_tokens) == (64, 256)
