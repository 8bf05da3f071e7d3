"""Proof of vllm.lora-prefix-key: requests of one adapter after another, by the engine core's intake and the cache of blocks.

Each request is taken in, looked up in the cache, computed, answered and freed. Spared: requests without an adapter, and
servers whose hashes of blocks others read.
"""

from __future__ import annotations

import hashlib
import os
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from attnfix.patches.lab.proof import Cases, Observation

from . import wrap

_CORE, _UTILS = "vllm.v1.engine.core", "vllm.v1.core.kv_cache_utils"
_PROMPT, _ANSWER, _BLOCKS = 75, 20, 256


class Ask(NamedTuple):
    """A request with the tokens of those before it and some more. It is answered from the cache as far as `like` was: the
    number of an earlier request of the same adapter, salt and image."""

    adapter: tuple[str, int, str] | None
    like: int | None = None
    salt: str | None = None
    image: str | None = None


class Case(NamedTuple):
    asks: tuple[Ask, ...]
    block_size: int = 16
    #: What reads the hashes of this server
    connector: str | None = None
    events: bool = False


FIRST, SECOND = ("tenant", 1, "/adapters/1"), ("tenant", 2, "/adapters/2")
RELOADED, OTHER = ("tenant", 3, "/adapters/1"), ("other", 4, "/adapters/1")
#: One name is loaded from another path, and again from the first one: there the cache still serves
_TURNS = (Ask(FIRST), Ask(FIRST, 0), Ask(SECOND), Ask(RELOADED, 1), Ask(OTHER), Ask(None), Ask(SECOND, 2))
_SALT = (Ask(FIRST), Ask(None, salt="tenant"), Ask(SECOND, salt="tenant"), Ask(FIRST, salt="tenant"), Ask(FIRST, 0))
_IMAGES = (Ask(FIRST, image="a"), Ask(FIRST, image="b"), Ask(SECOND, image="a"), Ask(RELOADED, 0, image="a"))
_WITHOUT = (Ask(None), Ask(None, 0), Ask(None, salt="a"), Ask(None, 2, salt="a"), Ask(None, image="b"), Ask(None, 4, image="b"))
_ONE = (Ask(FIRST), Ask(OTHER), Ask(None), Ask(RELOADED, 0))


class Proof(Cases):
    modules = (_CORE, _UTILS, "vllm.v1.core.kv_cache_manager", "vllm.v1.kv_cache_interface", "vllm.v1.engine")
    kernel = "none"
    measure = "share of tokens that are cached wrongly, or missed"
    needs = f"{_UTILS}:_gen_lora_extra_hash_keys: lora_name"
    absent = "an adapter's key is its number"
    bug = (Case(_TURNS), Case(_TURNS, block_size=8), Case(_SALT), Case(_IMAGES))
    spared = (Case(_WITHOUT), Case(_WITHOUT, block_size=8), Case(_ONE, connector="NixlConnector"), Case(_ONE, events=True))
    around = {"`--no-enable-prefix-caching`": {"caching": False}}
    broken = {
        "the correction does nothing": (wrap.adapter_keys, lambda real, request: [request.lora_request.lora_name]),
        "the path is left out": (wrap.adapter_keys, lambda real, request: [real(request)[0][:2]]),
        "the number is in the key": (wrap.adapter_keys, lambda real, request: (
            [(*real(request)[0], request.lora_request.lora_int_id)]
        )),
        "the path is all of the key": (wrap.adapter_keys, lambda real, request: [real(request)[0][2]]),
        "no adapter is in the key": (wrap.adapter_keys, lambda real, request: []),
        "answers are hashed by the name alone": (wrap.adapter_keys, lambda real, request: (
            real(request) if request.num_output_tokens == 0 else [request.lora_request.lora_name]
        )),
    }  # fmt: skip
    caching = True

    def run(self, case: Case, seed: int) -> Observation:
        server = Server(self.engine, case, self.caching)
        wrong = asked = 0
        hashes = hashlib.sha256()
        cached: list[int] = []  # of each request, tokens that a later one like it finds
        tokens = [(seed + 7 * at) % 1000 for at in range(_PROMPT)]
        for ask in case.asks:
            hits, blocks = server.answer(ask, tokens, _ANSWER)
            tokens = server.tokens
            right = cached[ask.like] if ask.like is not None and self.caching else 0
            wrong, asked = wrong + abs(hits - right), asked + len(tokens)
            cached.append(len(blocks) * case.block_size)
            hashes.update(b"".join(map(bytes, blocks)))
        return Observation(wrong / asked, hashes.hexdigest())


class Server:
    """The engine core's intake of requests and its manager of blocks, of a model with full attention."""

    def __init__(self, engine: dict[str, Any], case: Case, caching: bool):
        import torch

        core, utils, manager, interface, self.messages = engine.values()
        hash_of: Any = import_module("vllm.utils.hashing").sha256
        with patch.dict(os.environ, PYTHONHASHSEED="0"):
            utils.init_none_hash(hash_of)
        given = dict(block_size=case.block_size, num_kv_heads=1, head_size=8, dtype=torch.float16, use_mla=False)
        spec = interface.FullAttentionSpec(**_known(interface.FullAttentionSpec, given))
        blocks = interface.KVCacheConfig(_BLOCKS, [], [interface.KVCacheGroupSpec(["layer"], spec)])
        size = case.block_size
        given = dict(max_model_len=4096, scheduler_block_size=size, hash_block_size=size, enable_caching=caching)
        self.blocks = manager.KVCacheManager(blocks, **_known(manager.KVCacheManager, given))
        self.core = object.__new__(core.EngineCore)
        self.core.request_block_hasher = utils.get_request_block_hasher(size, hash_of) if caching else None
        self.core.mm_receiver_cache = None
        connector = SimpleNamespace(kv_connector=case.connector) if case.connector else None
        events = SimpleNamespace(enable_kv_cache_events=case.events)
        self.core.vllm_config = SimpleNamespace(kv_transfer_config=connector, kv_events_config=events)
        self.count, self.tokens = 0, [0]

    def answer(self, ask: Ask, prompt: list[int], answer: int) -> tuple[int, list[bytes]]:
        """(tokens that the request found in the cache, the hashes of its blocks)"""
        self.count += 1
        request, _ = self.core.preprocess_add_request(self._message(ask, prompt))
        found, hits, *_ = self.blocks.get_computed_blocks(request)
        assert self.blocks.allocate_slots(request, len(prompt) - hits, hits, found) is not None
        request.num_computed_tokens = len(prompt)
        request.append_output_token_ids([(self.count + 3 * at) % 1000 for at in range(answer)])
        assert self.blocks.allocate_slots(request, answer) is not None
        self.blocks.free(request)
        self.tokens = list(request.all_token_ids)
        return hits, list(request.block_hashes)

    def _message(self, ask: Ask, prompt: list[int]) -> Any:
        lora: Any = import_module("vllm.lora.request").LoRARequest
        sampling: Any = import_module("vllm.sampling_params").SamplingParams(max_tokens=99)
        given = dict(
            request_id=f"request-{self.count}", prompt_token_ids=list(prompt), mm_features=_image(ask.image),
            sampling_params=sampling, pooling_params=None, eos_token_id=None, arrival_time=0.0,
            lora_request=lora(*ask.adapter) if ask.adapter else None, cache_salt=ask.salt, data_parallel_rank=None,
        )  # fmt: skip
        cls = self.messages.EngineCoreRequest
        return cls(**{name: value for name, value in given.items() if name in cls.__struct_fields__})


def _image(name: str | None) -> Any:
    """An image over tokens of the first three blocks."""
    if name is None:
        return None
    inputs: Any = import_module("vllm.multimodal.inputs")
    place = inputs.PlaceholderRange(offset=5, length=30)
    return [inputs.MultiModalFeatureSpec(data=None, modality="image", identifier=name, mm_position=place)]


def _known(cls: Any, given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in signature(cls).parameters}
