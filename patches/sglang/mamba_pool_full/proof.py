"""Proof of sglang.mamba-pool-full: prompts come until cached states fill their pool, and more come.

Spared: pools that do not fill. Real and played parts: `lab.sglang.hybrid_queue`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation
from attnfix.patches.lab.sglang import hybrid_queue

from . import wrap

_TREE, _POOLS, _COMMON = (f"sglang.srt.mem_cache.{name}" for name in ("mamba_radix_cache", "memory_pool", "common"))


class Case(NamedTuple):
    """states: of the pool; together: prompts that come at once; shared: tokens that all of them begin with; overlap: whether a
    batch is launched before the last one's result is processed."""

    states: int
    together: int = 1
    shared: int = 0
    overlap: bool = False


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", _POOLS, _TREE, _COMMON, "sglang.srt.managers.schedule_batch")
    may_lack = (_TREE, _COMMON)
    kernel = "none"
    needs = f"no {_POOLS}:HybridReqToTokenPool.__init__: enable_mamba_extra_buffer"
    absent = "requests get their states by a way of its own"
    measure = "share of requests that read what is not theirs, or 1 where the server ends or loses memory"
    bug = (Case(6), Case(11, together=3), Case(12, together=4, shared=3), Case(6, overlap=True))
    spared = (Case(40), Case(40, together=4), Case(40, overlap=True))
    broken: Mapping[str, Any] = {
        "the correction does nothing": (wrap.make_room, lambda real, tree, states: None),
        "one state is missed": (wrap.make_room, lambda real, tree, states: real(tree, states - 1)),
    }

    def prepare(self) -> None:
        super().prepare()
        if _TREE not in self.engine:
            raise NoSuchPath("no radix cache keeps states")

    def run(self, case: Case, seed: int) -> Observation:
        draw = random.Random(seed)

        def text(tokens: int) -> list[int]:
            return [draw.randrange(1, 64) for _ in range(tokens)]

        server, prefix = hybrid_queue.Server(600, case.states, case.overlap), text(case.shared)
        try:
            for _ in range(12 // case.together):
                for _ in range(case.together):
                    server.arrive([*prefix, *text(9)], text(4))
                while server.step():
                    pass
        except TypeError as error:
            return Observation(1.0, str(error))
        outcome = [(one.rid, list(one.output_ids)) for one in server.finished], server.lost(), sorted(server.wrong)
        wrong = 1.0 if server.lost() else len(server.wrong) / len(server.texts)
        return Observation(wrong, hashlib.sha256(repr(outcome).encode()).hexdigest())
