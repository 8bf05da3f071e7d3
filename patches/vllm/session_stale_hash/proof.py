"""Proof of vllm.session-stale-hash: whose KV prompts find in the cache, behind sessions of streamed input.

Real: the scheduler, its cache manager, the requests and their hashes. Emulated: a worker, which notes of each slot behind which
tokens it was written. Spared: sessions whose tokens end within a block, and requests that are none.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

from attnfix.patches.lab.proof import Observation
from attnfix.patches.lab.vllm.scheduling import SCHEDULER, Case, Served, case
from attnfix.patches.lab.vllm.windows import Windows

from .wrap import forget

_REQUEST, _HASHES = "vllm.v1.request", "vllm.v1.core.kv_cache_utils"
#: Tokens of a turn's answer; turns of a session
_ANSWER, _TURNS = 5, 3


class _Server:
    """What is asked of an engine, and its worker. written: (block, offset) -> a hash of the tokens up to there."""

    def __init__(self, engine: Any, seed: int):
        self.engine, self.draw, self.size = engine, random.Random(seed), engine.config.cache_config.block_size
        self.written: dict[tuple[int, int], int] = {}
        self.stopped: list[list[int]] = []  # tokens of a session, when it stops
        self.misled: set[str] = set()
        self.log: list[Any] = []

    def session(self, spare: int = 0, queued: bool = False) -> None:
        """Each turn ends so many tokens before the end of a block. queued: an update is there before the turn ends."""
        name, ends = f"session-{len(self.stopped)}", len(self.stopped)
        self._send(name, 3 * self.size - spare - _ANSWER)
        for turn in range(1, _TURNS + 1):
            # The first token takes the place of the one that is dropped
            more: dict[str, Any] = dict(tokens=2 * self.size + 1 - _ANSWER, resumable=turn < _TURNS)
            if queued:
                self._send(name, **more)
            while len(self.stopped) < ends + turn:
                self.engine.step(self._run)
            if not queued:
                self._send(name, **more)

    def ask(self, tokens: list[int]) -> None:
        """A request that is no session, with these tokens in front."""
        self.engine.add(tokens + self._tokens(self.size), 2)
        self._drain()

    def observe(self) -> Observation:
        """Behind prompts that begin as the sessions were when they stopped."""
        self._drain()
        for tokens in tuple(self.stopped):
            self.ask(tokens)
        wrong = len(self.misled) / max(len(self.stopped), 1)
        return Observation(wrong, hashlib.sha256(repr(self.log).encode()).hexdigest())

    def _send(self, name: str, tokens: int, resumable: bool = True) -> None:
        self.engine.add(self._tokens(tokens), _ANSWER, request_id=name, resumable=resumable)

    def _tokens(self, count: int) -> list[int]:
        return [self.draw.randrange(1 << 30) for _ in range(count)]

    def _drain(self) -> None:
        for _ in range(100):
            if not self.engine.scheduler.has_unfinished_requests():
                return
            self.engine.step(self._run)
        raise AssertionError("requests wait for ever")

    def _run(self, step: Any) -> tuple[dict[str, list[int]]]:
        scheduler, sampled = self.engine.scheduler, {}
        for name, count in step.num_scheduled_tokens.items():
            request = scheduler.requests[name]
            tokens, end = list(request.all_token_ids), request.num_computed_tokens  # the scheduler has counted the step
            blocks = scheduler.kv_cache_manager.get_block_ids(name)[0]
            for at in range(end):
                slot, prefix = (blocks[at // self.size], at % self.size), hash(tuple(tokens[: at + 1]))
                if at >= end - count:
                    self.written[slot] = prefix
                elif self.written[slot] != prefix:
                    self.misled.add(name)
            self.log.append((name, end, count, blocks))
            sampled[name] = self._tokens(1) if end >= request.num_tokens else []
            if request.resumable and request.num_output_tokens + len(sampled[name]) == _ANSWER:
                self.stopped.append(tokens + sampled[name])
        return (sampled,)


def sessions(server: _Server, spare: int = 0) -> None:
    """Whose updates come behind their turns, and before these end."""
    server.session(spare)
    server.session(spare, queued=True)


def within_a_block(server: _Server) -> None:
    sessions(server, spare=3)


def requests(server: _Server) -> None:
    """That share what they begin with."""
    tokens = server._tokens(3 * server.size)
    for _ in range(4):
        server.ask(tokens)


def _served(talk: Any, **more: Any) -> Case:
    return case(talk, **{"drafts": 0, "context": 2048, **more})


class Proof(Served):
    modules = (SCHEDULER, _REQUEST, _HASHES)
    kind = _Server
    kernel = "none"
    needs = "Scheduler._update_request_as_session"
    absent = "requests are no sessions"
    measure = "share of prompts that are answered from KV of other tokens"
    bug = (_served(sessions), _served(sessions, page_size=32), _served(sessions, max_tokens=24))
    spared = (_served(within_a_block), _served(requests))
    broken = {
        "the correction does nothing": (forget, lambda real, hashes, stale: None),
    }

    def run(self, case: Case, seed: int) -> Observation:
        with Windows(("full",), **case.launch) as engine:
            server = self.kind(engine, seed)
            case.talk(server)
            return server.observe()
