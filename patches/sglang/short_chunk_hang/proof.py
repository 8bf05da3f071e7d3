"""Proof of sglang.short-chunk-hang: prompts around the chunk's length in the queue of a deterministic server.

Spared: prompts that fit into a chunk, alignments that do, backends without one, servers that are not deterministic.
"""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation
from attnfix.patches.lab.sglang.text_queue import MISTRAL, Server

from .wrap import fitting

_SCHEDULER = "sglang.srt.managers.scheduler"
_TILES = "SGLANG_FLASHINFER_PREFILL_SPLIT_TILE_SIZE", "SGLANG_TRITON_PREFILL_TRUNCATION_ALIGN_SIZE"
_DETERMINISTIC = ("--enable-deterministic-inference",)


class Case(NamedTuple):
    """A prompt behind another one of `ahead` tokens; `tile`: what the chunks' ends are aligned to, where a variable says it."""

    prompt: int
    backend: str = "flashinfer"
    page: int = 1
    chunk: int = 64
    tile: int | None = None
    flags: tuple[str, ...] = _DETERMINISTIC
    ahead: int = 0
    #: Where the prompt is cut, if it is
    cut: int | None = 64


class Proof(Cases):
    modules = (_SCHEDULER,)
    kernel = "none"
    measure = "share of prompts that no batch takes, or takes with a cut elsewhere"
    needs = f"{_SCHEDULER}:Scheduler.init_deterministic_inference_config"
    absent = "no deterministic inference"
    bug = (
        Case(75), Case(75, ahead=20), Case(129, "triton", page=16), Case(75, "triton", tile=65),
        Case(200, chunk=128, tile=256, cut=128),
    )  # fmt: skip
    spared = (
        Case(60, tile=32, cut=None), Case(75, tile=32), Case(100, chunk=80, tile=32), Case(75, "fa3"),
        Case(75, flags=()), Case(75, chunk=-1, cut=None),
    )  # fmt: skip
    broken = {
        "the correction does nothing": (fitting, lambda real, alignment, chunk: alignment),
        "chunks end anywhere": (fitting, lambda real, alignment, chunk: None),
        "the alignment is halved": (fitting, lambda real, alignment, chunk: alignment and alignment // 2),
    }

    def run(self, case: Case, seed: int) -> Observation:
        if hasattr(self.engine[_SCHEDULER].Scheduler, "check_truncation_align_fits_chunk"):
            raise NoSuchPath("the release refuses such a launch")
        os.environ.update(dict.fromkeys(_TILES, str(case.tile or 4096)))
        flags = ("--attention-backend", case.backend, *case.flags)
        server = Server(self.engine[_SCHEDULER].Scheduler, MISTRAL, case.page, case.chunk, cached=False, flags=flags)
        server.scheduler.init_deterministic_inference_config()
        prompts = [count for count in (case.ahead, case.prompt) if count]
        for count in prompts:
            server.embed([(seed + 7 * i) % 50 + 1 for i in range(count)])
        server.run()
        taken = [tokens for batch in server.batches for _, tokens in batch]
        wanted = [*prompts[:-1], case.prompt if case.cut is None else case.cut]
        return Observation(float(taken != wanted), hashlib.sha256(repr(server.batches).encode()).hexdigest())
