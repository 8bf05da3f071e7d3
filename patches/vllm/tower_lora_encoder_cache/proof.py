"""Proof of vllm.tower-lora-encoder-cache: which adapter has encoded what requests get, one after another.

Real: the names of images, requests, and the manager of the encoder's cache. Emulated: the encoder, whose outputs say of which
adapter they are. Spared: requests without adapters, adapters of the text alone, and servers whose names of images others read.
"""

from __future__ import annotations

import hashlib
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation

from . import wrap

_PROCESSOR, _CACHE = "vllm.v1.engine.input_processor", "vllm.v1.core.encoder_cache_manager"
_LENGTH = 30

FIRST, SECOND = ("tenant", 1, "/adapters/1"), ("tenant", 1, "/adapters/2")
OTHER = ("other", 2, "/adapters/1")


class Ask(NamedTuple):
    adapter: tuple[str, int, str] | None
    image: str = "a"


class Case(NamedTuple):
    asks: tuple[Ask, ...]
    #: Whether adapters are the encoder's, too
    tower: bool = True
    #: What reads the names of images
    encoders: str | None = None
    connector: str | None = None
    events: bool = False


_RELOADED = (Ask(FIRST), Ask(FIRST), Ask(SECOND), Ask(SECOND, "b"), Ask(FIRST), Ask(OTHER), Ask(None), Ask(SECOND))
_ONE = (Ask(FIRST), Ask(FIRST), Ask(FIRST, "b"), Ask(OTHER), Ask(None))


class Proof(Cases):
    modules = (_PROCESSOR, _CACHE)
    may_lack = (_PROCESSOR,)
    needs = f"{_PROCESSOR}:InputProcessor._get_mm_identifier"
    absent = "adapters of an encoder are not served"
    kernel = "none"
    measure = "share of images that another adapter has encoded, or that are encoded once more"
    bug = (Case(_RELOADED), Case(_RELOADED[::-1]))
    spared = (
        Case((Ask(None), Ask(None), Ask(None, "b"))), Case(_ONE, tower=False), Case(_ONE, connector="NixlConnector"),
        Case(_ONE, events=True), Case(_ONE, encoders="ECExampleConnector"),
    )  # fmt: skip
    broken = {
        "the correction does nothing": (wrap.with_path, lambda real, mm_hash, path: mm_hash),
        "the image is left out": (wrap.with_path, lambda real, mm_hash, path: path),
    }

    def run(self, case: Case, seed: int) -> Observation:
        processor = object.__new__(self.engine[_PROCESSOR].InputProcessor)
        processor.lora_config = SimpleNamespace(enable_tower_connector_lora=case.tower)
        processor.vllm_config = SimpleNamespace(
            kv_transfer_config=SimpleNamespace(kv_connector=case.connector) if case.connector else None,
            ec_transfer_config=SimpleNamespace(ec_connector=case.encoders) if case.encoders else None,
            kv_events_config=SimpleNamespace(enable_kv_cache_events=case.events),
        )
        cache = self.engine[_CACHE].EncoderCacheManager(cache_size=64 * _LENGTH)
        encoded: dict[str, Any] = {}  # name -> what the encoder has made
        made: set[Any] = set()
        wrong, log = 0, []
        for number, ask in enumerate(case.asks):
            request = self._request(processor, number, ask)
            name = request.mm_features[0].identifier
            right = (ask.adapter[::2] if ask.adapter and case.tower else None, ask.image)
            if cached := cache.check_and_update_cache(request, 0):
                wrong += encoded[name] != right
            else:
                assert cache.can_allocate(request, 0, _LENGTH, 0)
                cache.allocate(request, 0)
                wrong += right in made
                encoded[name] = right
                made.add(right)
            cache.free(request)
            log.append((name, cached))
        return Observation(wrong / len(case.asks), hashlib.sha256(repr(log).encode()).hexdigest())

    def _request(self, processor: Any, number: int, ask: Ask) -> Any:
        inputs: Any = import_module("vllm.multimodal.inputs")
        adapter = import_module("vllm.lora.request").LoRARequest(*ask.adapter) if ask.adapter else None
        image = inputs.MultiModalFeatureSpec(
            data=None, modality="image", identifier=processor._get_mm_identifier(ask.image, adapter),
            mm_position=inputs.PlaceholderRange(offset=5, length=_LENGTH),
        )  # fmt: skip
        cls: Any = import_module("vllm.v1.request").Request
        given = dict(
            request_id=f"request-{number}", prompt_token_ids=list(range(50)), mm_features=[image], lora_request=adapter,
            sampling_params=import_module("vllm.sampling_params").SamplingParams(max_tokens=9), pooling_params=None,
            eos_token_id=None,
        )  # fmt: skip
        return cls(**{name: value for name, value in given.items() if name in signature(cls).parameters})
