"""Proof of sglang.preempted-twice-freed: requests of higher priorities arrive at a full server as others end.

Spared: servers in which none ends then, and differences of priorities that are too small. Real and played parts:
`lab.sglang.window_cache`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation
from attnfix.patches.lab.sglang.window_cache import Server

from . import wrap


class Case(NamedTuple):
    """running: (priority, tokens of its answer) of requests that run; late: turns before others of priority 9 come, and how
    many come."""

    running: tuple[tuple[int, int], ...]
    late: int
    threshold: int = 0
    come: int = 3


_ENDS, _LATER = ((0, 3), (0, 20), (4, 20)), ((0, 3), (4, 20), (4, 20))


class Proof(Cases):
    modules = ("sglang.srt.managers.schedule_policy",)
    kernel = "none"
    measure = "share of requests that read KV of others, or 1 where slots are freed twice"
    needs = "PrefillAdder.preempt_to_schedule: server_args"
    absent = "a preemption is not given how the server was launched"
    bug = (Case(_ENDS, 3), Case(_LATER, 3), Case(((0, 4), (0, 4)), 4))
    spared = (Case(((0, 30), (0, 30)), 2, come=1), Case(_ENDS, 3, 20), Case(((9, 4), (9, 4)), 4))
    broken: Mapping[str, Any] = {
        "the correction does nothing": (wrap.hidden, lambda real, requests: []),
    }

    def run(self, case: Case, seed: int) -> Observation:
        draw = random.Random(seed)
        server = Server(slots=(256, 256), overlap=False, limit=len(case.running), threshold=case.threshold)

        def text(tokens: int) -> list[int]:
            return [draw.randrange(1, 64) for _ in range(tokens)]

        try:
            for priority, answer in case.running:
                server.arrive(text(12), text(answer), priority)
            for _ in range(case.late):
                server.step()
            for _ in range(case.come):
                server.arrive(text(20), text(6), 9)
                server.step()
            while server.step():
                pass
        except AssertionError as error:
            return Observation(1.0, str(error))
        wrong = 1.0 if server.lost() else len(server.wrong) / len(server.texts)
        return Observation(wrong, hashlib.sha256(repr(server.batches).encode()).hexdigest())
