"""Proof of vllm.image-split: which tokens of images see all of their image, on a server whose steps are full.

Real: the scheduler, its cache managers and their steps. Emulated: the size of the encoder's cache, which a processor gives, and
a worker whose layers see the tokens of a step and those before it. Spared: models that attend causally, steps that hold all
prompts, and prompts without images.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from importlib import import_module
from typing import Any

from attnfix.patches.lab.proof import Cases, Observation
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.scheduling import SCHEDULER, Case, case
from attnfix.patches.lab.vllm.windows import Windows

from . import wrap

MODEL = "vllm.config.model"
#: Tokens of an image, and of a step
IMAGE, STEP = 40, 96


class Images(Windows):
    """Layers as Gemma 3's. both_ways: whether images are attended both ways. whole: the flag that NVIDIA's platform sets."""

    def __init__(self, *, both_ways: bool = True, whole: bool = True, **more: Any):
        more["scheduler"] = {"disable_chunked_mm_input": whole, **more.get("scheduler", {})}
        super().__init__(("full", "window"), **{"drafts": 0, "max_tokens": STEP, "context": 512, "max_requests": 24, **more})
        model: Any = self.config.model_config
        if isinstance(type(model).is_mm_prefix_lm, property):  # 0.20 to 0.25
            model.model_arch_config = replace(model.model_arch_config, is_mm_prefix_lm=both_ways)
        else:
            vars(model)["is_mm_prefix_lm"] = both_ways

    def _construct(self) -> None:
        super()._construct()
        self.scheduler.max_num_encoder_input_tokens = 4 * STEP
        manager: Any = import_module("vllm.v1.core.encoder_cache_manager").EncoderCacheManager
        self.scheduler.encoder_cache_manager = manager(cache_size=16 * STEP)


class _Server:
    """What the worker and the layers of an engine do. A step gives each request a token that has computed all it has."""

    def __init__(self, engine: Any, seed: int):
        self.engine, self.draw, self.both_ways = engine, random.Random(seed), engine.config.model_config.is_mm_prefix_lm
        self.images: dict[str, list[tuple[int, int]]] = {}
        self.log: list[Any] = []
        self.seen = self.missed = 0

    def ask(self, images: int, output: int, of: int = 0) -> None:
        """A prompt of an image behind each text, and a question. Prompts `of` one number are alike up to the question."""
        inputs: Any = import_module("vllm.multimodal.inputs")
        draw, tokens, features = random.Random(of or self.draw.random()), [], []
        for _ in range(images):
            tokens += _text(draw)
            at = inputs.PlaceholderRange(offset=len(tokens), length=IMAGE)
            tokens += [0] * IMAGE
            name = f"image-{draw.randrange(1 << 30)}"
            features.append(inputs.MultiModalFeatureSpec(data=None, modality="image", identifier=name, mm_position=at))
        request = self.engine.add(tokens + _text(self.draw), output, features)
        self.images[request.request_id] = [(one.mm_position.offset, one.mm_position.offset + IMAGE) for one in features]

    def serve(self, steps: int = 400) -> None:
        """Until all are answered."""
        for _ in range(steps):
            self.engine.step(self._run)
            if not self.engine.scheduler.has_unfinished_requests():
                return
        raise AssertionError("requests wait for ever")

    def observe(self) -> Observation:
        return Observation(self.missed / max(self.seen, 1), hashlib.sha256(repr(self.log).encode()).hexdigest())

    def _run(self, step: Any) -> tuple[dict[str, list[int]]]:
        sampled = {}
        for name, count in step.num_scheduled_tokens.items():
            request = self.engine.scheduler.requests[name]
            end = request.num_computed_tokens  # the scheduler has counted the step
            self.log.append((name, end, count))
            for first, last in self.images[name]:
                inside = max(0, min(end, last) - max(end - count, first))
                self.seen += inside
                self.missed += inside if self.both_ways and first < end < last else 0
            sampled[name] = [1] if end >= request.num_tokens else []
        return (sampled,)


def _text(draw: random.Random) -> list[int]:
    return [draw.randrange(1 << 30) for _ in range(draw.randrange(1, 30))]


def busy(server: _Server, most: int = 3) -> None:
    """Prompts come beside answers that go on. most: images of one, below."""
    for _ in range(60):
        server.ask(server.draw.randrange(most), server.draw.randrange(1, 40))
    server.serve()


def cached(server: _Server) -> None:
    """Blocks that others have computed end within an image."""
    for number in range(80):
        server.ask(1, server.draw.randrange(1, 40), of=1 + number % 4)
    server.serve()


def text(server: _Server) -> None:
    busy(server, most=1)


def alone(server: _Server) -> None:
    """One request at a time."""
    for _ in range(8):
        server.ask(3, 4)
        server.serve()


class Proof(Cases):
    modules = (SCHEDULER, MODEL)
    may_lack = (MODEL,)
    needs = f"{MODEL}:ModelConfig.is_mm_prefix_lm"
    absent = "no model attends both ways within images"
    kernel = "none"
    measure = "share of the images' tokens that do not see all of their image"
    bug = (
        case(busy),
        case(busy, ahead=True, blocks=64),
        case(busy, whole=False),
        case(cached, page_size=32, max_tokens=64),
        case(cached, drafts=2),
    )
    spared = (
        case(text), case(alone), case(busy, max_tokens=4096), case(busy, both_ways=False), case(cached, both_ways=False),
    )  # fmt: skip
    broken = {
        "the correction does nothing": (wrap, "image_at", lambda images, end: None),
        "no request waits": (wrap, "may_wait", lambda running, request: False),
        "an image is left to the engine that does not end before it": (wrap, "engine_ends", lambda *scheduler: True),
        "no step holds an image": (wrap, "longest", lambda scheduler: IMAGE // 2),
    }

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def run(self, case: Case, seed: int) -> Observation:
        with Images(**case.launch) as engine:
            server = _Server(engine, seed)
            case.talk(server)
            return server.observe()
