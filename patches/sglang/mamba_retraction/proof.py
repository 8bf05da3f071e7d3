"""Proof of sglang.mamba-retraction: requests of a hybrid model are taken back for want of KV, and run again to their ends.

Spared: servers whose requests fit. Real and played parts: `lab.sglang.hybrid_queue`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation
from attnfix.patches.lab.sglang import hybrid_queue

from . import wrap

_TREE, _SCHEDULE = "sglang.srt.mem_cache.mamba_radix_cache", "sglang.srt.managers.schedule_batch"
_POOLS = "sglang.srt.mem_cache.memory_pool"
_PROCESSOR = "sglang.srt.managers.scheduler_output_processor_mixin"
#: Releases that free the KV of a token in flight as its request was taken back
_FREES = f"{_PROCESSOR}:SchedulerOutputProcessorMixin.process_batch_result_prefill: req_pool_indices"


class Case(NamedTuple):
    """`requests`: (tokens of the prompt, of the answer); `tokens`: slots of the KV pool; `turns`: whether the first one is
    answered before the others come, which begin with its prompt."""

    requests: tuple[tuple[int, int], ...]
    tokens: int
    turns: bool = False
    overlap: bool = False
    where: str = ""


_FULL = ((20, 20), (20, 20), (12, 24))
_TURNS = ((16, 4), (30, 20), (30, 20), (28, 24))


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", _SCHEDULE, _POOLS, _TREE, _PROCESSOR)
    may_lack = (_TREE, _PROCESSOR)
    kernel = "none"
    needs = f"no {_POOLS}:HybridReqToTokenPool.__init__: enable_mamba_extra_buffer"
    absent = "requests that run give their states back by a way of its own"
    measure = "share of requests that read what is not theirs, or 1 where the server ends or loses memory"
    bug = (
        Case(_FULL, 80),
        Case(((9, 30), (8, 30), (9, 28)), 75),
        Case(_TURNS, 90, turns=True),
        Case(_FULL, 80, overlap=True, where=_FREES),
    )
    spared = (Case(_FULL, 400), Case(_TURNS, 400, turns=True), Case(_FULL, 400, overlap=True))
    broken: Mapping[str, Any] = {
        "the correction does nothing": (wrap.give_back, lambda real, tree, req, is_insert: None),
        "the state stays in use": (wrap.give_back, lambda real, tree, req, is_insert: (
            real(tree, req), tree.req_to_token_pool.mamba_pool.alloc(1),
        )),
        "the last token is missed": (wrap.give_back, lambda real, tree, req, is_insert: (
            real(tree, SimpleNamespace(**{**vars(req), "output_ids": req.output_ids[1:]}))
        )),
        "the prefix stays locked": (wrap.give_back, lambda real, tree, req, is_insert: (
            tree.inc_lock_ref(req.last_node), real(tree, req),
        )),
        "the row keeps its number": (wrap.forget_row, lambda real, request: None),
    }  # fmt: skip
    broken_where: Mapping[str, str] = {"the row keeps its number": f"no {_SCHEDULE}:Req.reset_for_retract: req_pool_idx"}

    def prepare(self) -> None:
        super().prepare()
        if _TREE not in self.engine:
            raise NoSuchPath("no radix cache keeps states")

    def run(self, case: Case, seed: int) -> Observation:
        draw = random.Random(seed)
        server = hybrid_queue.Server(case.tokens, 24, case.overlap)
        asked = [([draw.randrange(1, 64) for _ in range(prompt)], [1] * answer) for prompt, answer in case.requests]
        try:
            for number, (prompt, answer) in enumerate(asked):
                begin = asked[0][0] if case.turns and number else []
                server.arrive([*begin, *prompt[len(begin) :]], answer)
                while case.turns and not number and server.step():
                    pass
            while server.step():
                pass
        except (TypeError, AssertionError) as error:
            return Observation(1.0, str(error))
        outcome = [(one.rid, list(one.output_ids)) for one in server.finished], server.retracted, server.lost(), server.wrong
        wrong = 1.0 if server.lost() else len(server.wrong) / len(server.texts)
        return Observation(wrong, hashlib.sha256(repr(outcome).encode()).hexdigest())
