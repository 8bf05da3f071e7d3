"""Proof of sglang.encoder-prefix-cache: texts that share their first tokens, and full batches, in an encoder's queue.

Spared: models whose tokens see those before them alone, which keep their cached prefixes and chunks.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from attnfix.patches.lab.proof import Cases, Observation
from attnfix.patches.lab.sglang.text_queue import BERT, MISTRAL, Server

from . import wrap

_SCHEDULER = "sglang.srt.managers.scheduler"
_PARTS = "sglang.srt.mem_cache.unified_cache.components", "sglang.srt.mem_cache.unified_cache_components"
_UNIFIED = " or ".join(f"{name}:ComponentType" for name in _PARTS)


class Case(NamedTuple):
    """Waves of texts, each of (tokens that it shares with all, tokens of its own)."""

    waves: tuple[tuple[tuple[int, int], ...], ...]
    architecture: str = "BertModel"
    page: int = 1
    chunk: int = -1
    cached: bool = True
    unified: bool = False
    #: The place that a release needs for this case
    where: str = ""


_SHARED = ((20, 9),), ((20, 14), (33, 0)), ((20, 9), (12, 3))
_FULL = ((0, 40), (5, 20), (5, 33), (0, 7)), ((0, 75),)
_PAGES_FULL = ((0, 30), (0, 34)), ((0, 64),), ((1, 20),)


class Proof(Cases):
    modules = (_SCHEDULER, *_PARTS)
    may_lack = _PARTS
    kernel = "none"
    measure = "share of tokens whose KV are those of another text, or of a part of it"
    bug = (
        Case(_SHARED), Case(_SHARED, "XLMRobertaForSequenceClassification", 16), Case(_FULL, chunk=64),
        Case(_FULL, "XLMRobertaModel", 16, 64), Case(_PAGES_FULL, "Contriever", 16, 64, cached=False),
        Case(_SHARED, page=16, unified=True, where=_UNIFIED),
        Case(_FULL, "BertForSequenceClassification", chunk=64, unified=True, where=_UNIFIED),
    )  # fmt: skip
    spared = (
        Case(_SHARED, "MistralModel"), Case(_SHARED, "MistralModel", 16), Case(_FULL, "MistralModel", chunk=64),
        Case(_SHARED, "MistralModel", 16, unified=True, where=_UNIFIED), Case(_SHARED, cached=False),
    )  # fmt: skip
    broken = {
        "the correction does nothing": [
            (wrap.switch_off, lambda real, tree: None), (wrap.keep_whole, lambda real, scheduler: None),
        ],
        "the radix cache stays on": (wrap.switch_off, lambda real, tree: None),
        "texts are split": (wrap.keep_whole, lambda real, scheduler: None),
    }  # fmt: skip

    def run(self, case: Case, seed: int) -> Observation:
        config = {**(MISTRAL if case.architecture == "MistralModel" else BERT), "architectures": [case.architecture]}
        server = Server(self.engine[_SCHEDULER].Scheduler, config, case.page, case.chunk, case.cached, case.unified)
        for number, wave in enumerate(case.waves):
            for at, (shared, own) in enumerate(wave):
                texts = seed + 13 * (4 * number + at + 1)
                server.embed([(seed + 7 * i) % 50 + 1 for i in range(shared)] + [(texts + 5 * i) % 50 + 1 for i in range(own)])
            if not server.run():
                break
        else:
            server.wrong += server.lost()
        return Observation(server.wrong / server.tokens, hashlib.sha256(repr(server.batches).encode()).hexdigest())
