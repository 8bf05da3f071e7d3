"""Proof of vllm.encoder-decoder-leak: encoder outputs that a worker keeps once all requests are answered.

Real: the scheduler, the manager of encoder outputs and the steps. Emulated: the size of the encoder's cache, which a processor
gives; and a worker, which drops the outputs that a step names and then keeps those that it computes. Spared: requests without
a recording, and models whose images lie in the prompt.
"""

from __future__ import annotations

import hashlib
import random
from importlib import import_module
from typing import Any

from attnfix.patches.lab.proof import Observation
from attnfix.patches.lab.vllm.scheduling import SCHEDULER, Served, case
from attnfix.patches.lab.vllm.windows import Windows

from .wrap import a_step_later

_MANAGERS = "vllm.v1.core.encoder_cache_manager"
#: Outputs of a recording, and tokens of a step
_FRAMES, _STEP = 30, 128


class _Server:
    """What is asked of an engine, and its worker."""

    def __init__(self, engine: Any, seed: int):
        self.engine, self.draw = engine, random.Random(seed)
        self.kept: set[str] = set()
        self.computed = 0
        self.log: list[Any] = []
        scheduler = engine.scheduler
        scheduler.max_num_encoder_input_tokens = 4 * _FRAMES

    def takes_recordings(self) -> None:
        """As the scheduler of Whisper's is made."""
        scheduler = self.engine.scheduler
        scheduler.is_encoder_decoder, scheduler._num_encoder_max_input_tokens = True, _FRAMES
        scheduler.encoder_cache_manager = import_module(_MANAGERS).EncoderDecoderCacheManager(cache_size=6 * _FRAMES)

    def takes_images(self) -> None:
        self.engine.scheduler.encoder_cache_manager = import_module(_MANAGERS).EncoderCacheManager(cache_size=6 * _FRAMES)

    def ask(self, name: str = "", offset: int = 0) -> None:
        """A prompt, with a recording or an image of this name."""
        inputs: Any = import_module("vllm.multimodal.inputs")
        at = inputs.PlaceholderRange(offset=offset, length=_FRAMES)
        features = [inputs.MultiModalFeatureSpec(data=None, modality="audio", identifier=name, mm_position=at)] if name else []
        tokens = [self.draw.randrange(1 << 30) for _ in range(offset + _FRAMES + 4 if offset else self.draw.randrange(4, 30))]
        self.engine.add(tokens, self.draw.randrange(1, 12), features)

    def serve(self) -> None:
        """Until all are answered."""
        for _ in range(400):
            if not self.engine.scheduler.has_unfinished_requests():
                return
            self.engine.step(self._run)
        raise AssertionError("requests wait for ever")

    def _run(self, step: Any) -> tuple[dict[str, list[int]]]:
        named = sorted(step.free_encoder_mm_hashes)
        self.kept.difference_update(named)
        requests = self.engine.scheduler.requests
        for name, inputs in step.scheduled_encoder_inputs.items():
            self.kept.update(requests[name].mm_features[at].identifier for at in inputs)
            self.computed += len(inputs)
        self.log.append((named, sorted(self.kept), dict(step.num_scheduled_tokens)))
        ready = [name for name in step.num_scheduled_tokens if requests[name].num_computed_tokens >= requests[name].num_tokens]
        return ({name: [1] for name in ready},)

    def observe(self) -> Observation:
        """Behind a request that has none, and whose steps name those of the last one. Images stay in the manager's cache."""
        self.ask()
        self.serve()
        lost = self.kept.difference(getattr(self.engine.scheduler.encoder_cache_manager, "cached", ()))
        return Observation(len(lost) / max(self.computed, 1), hashlib.sha256(repr(self.log).encode()).hexdigest())


def recordings(server: _Server) -> None:
    """One by one, and several at a time; some of them twice."""
    server.takes_recordings()
    for at in range(24):
        server.ask(f"recording-{at - at % 5 // 4}")
        if at % 3:
            server.serve()
    server.serve()


def text(server: _Server) -> None:
    server.takes_recordings()
    for _ in range(8):
        server.ask()
    server.serve()


def images(server: _Server) -> None:
    """Each in a prompt of its own. The manager frees the oldest where there is no room."""
    server.takes_images()
    for at in range(12):
        server.ask(f"image-{at}", offset=5)
    server.serve()


def _none_is_named(real: Any, manager: Any, hashes: list[str]) -> list[str]:
    real(manager, hashes)
    return []


class Proof(Served):
    modules = (SCHEDULER, _MANAGERS)
    kind = _Server
    kernel = "none"
    needs = f"{_MANAGERS}:EncoderDecoderCacheManager"
    absent = "encoder-decoder models have the common manager"
    measure = "share of encoder outputs that are kept once all requests are answered"
    bug = (
        case(recordings, drafts=0, max_tokens=_STEP),
        case(recordings, drafts=0, max_tokens=_STEP, ahead=True),
    )
    spared = (case(text, drafts=0), case(images, drafts=0))
    broken = {
        "the correction does nothing": (a_step_later, lambda real, manager, hashes: hashes),
        "an output is missed": (a_step_later, lambda real, manager, hashes: real(manager, hashes[1:])),
        "no output is freed": (a_step_later, _none_is_named),
    }

    def run(self, case: Any, seed: int) -> Observation:
        with Windows(("full",), **case.launch) as engine:
            server = self.kind(engine, seed)
            case.talk(server)
            return server.observe()
