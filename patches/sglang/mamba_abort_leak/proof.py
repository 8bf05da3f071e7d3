"""Proof of sglang.mamba-abort-leak: prompts with a cached prefix wait for KV. They are given up, or their prefix is evicted.

Spared: prompts that fit, and prompts that wait with no prefix cached. Real: the scheduler's ends of requests that wait, too;
other real and played parts: `lab.sglang.hybrid_queue`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation
from attnfix.patches.lab.sglang import hybrid_queue
from attnfix.patches.lab.sglang.engine import module

from . import wrap

_TREE, _POLICY, _SCHEDULER = (
    f"sglang.srt.{name}" for name in ("mem_cache.mamba_radix_cache", "managers.schedule_policy", "managers.scheduler")
)
#: Releases whose requests give their state back as they are aborted
_FREES = f"{_SCHEDULER}:Scheduler.abort_request: mamba_pool_idx"
ABORTED, OUTRANKED = "aborted", "outranked"


class Case(NamedTuple):
    """tokens: slots of the KV pool; shared: tokens of the first prompt that the last one begins with; ends: how it ends as it
    waits, or else it runs in the end; where: releases of it."""

    tokens: int = 48
    shared: int = 16
    ends: str = ""
    where: str = ""


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", _POLICY, _TREE, _SCHEDULER)
    may_lack = (_TREE,)
    kernel = "none"
    needs = f"no {_SCHEDULER}:Scheduler._get_new_batch_prefill_raw: mamba_pool_idx"
    absent = "the scheduler takes the state of a request back that it does not run"
    measure = "share of requests that begin with a state of others, or 1 where a state is lost"
    bug = (Case(), Case(ends=OUTRANKED), Case(ends=ABORTED, where=f"no {_FREES}"))
    spared = (Case(400), Case(shared=0), Case(shared=0, ends=OUTRANKED))
    broken: Mapping[str, Any] = {
        "the correction does nothing": (wrap.give_back, lambda real, pool, request: None),
        "the request keeps what it gives back": (wrap.give_back, lambda real, pool, request: (
            pool.free(request.mamba_pool_idx.unsqueeze(-1))
        )),
        "the copy is forgotten": (wrap.give_back, lambda real, pool, request: setattr(request, "mamba_pool_idx", None)),
    }  # fmt: skip

    def prepare(self) -> None:
        super().prepare()
        if _TREE not in self.engine:
            raise NoSuchPath("no radix cache keeps states")

    def run(self, case: Case, seed: int) -> Observation:
        draw = random.Random(seed)
        first, long, last = ([draw.randrange(1, 64) for _ in range(tokens)] for tokens in (16, 20, 30))
        server = hybrid_queue.Server(case.tokens, 60)
        server.arrive(first, [1] * 4)
        while server.step():
            pass
        server.arrive(long, [1] * 24)
        server.step()
        server.arrive([*first[: case.shared], *last[case.shared :]], [1] * 4)
        server.step()
        if case.ends and server.waiting:
            self._end(server, case.ends)
        while server.step():
            pass
        outcome = [(one.rid, list(one.output_ids)) for one in server.finished], server.lost(), sorted(server.wrong)
        wrong = 1.0 if server.lost() else len(server.wrong) / len(server.texts)
        return Observation(wrong, hashlib.sha256(repr(outcome).encode()).hexdigest())

    def _end(self, server: hybrid_queue.Server, how: str) -> None:
        """The scheduler drops the request that waits."""
        home, silent = self.engine[_SCHEDULER].Scheduler, hybrid_queue.silent()
        scheduler = _Scheduler(
            waiting_queue=server.waiting, tree_cache=server.tree, grammar_queue=[], running_batch=server.running,
            cur_batch=None, send_to_tokenizer=silent, max_queued_requests=1, enable_priority_scheduling=True,
            schedule_low_priority_values_first=False,
            disaggregation_mode=module("disaggregation.utils").DisaggregationMode.NULL,
        )  # fmt: skip
        (request,) = server.waiting
        if how == ABORTED:
            home.abort_request(scheduler, SimpleNamespace(rid=request.rid, abort_all=False))
        else:
            request.priority = 0
            home._abort_on_queued_limit(scheduler, SimpleNamespace(rid="another", priority=1))
        assert not server.waiting


class _Scheduler(SimpleNamespace):
    """What it has beside is off."""

    def __getattr__(self, name: str) -> bool:
        return False
