"""Requests of a hybrid model that begin behind a cached prefix: of which tokens is the recurrent state that they begin with?

    case(conversations(130, at_once=3), drafter={"per_layer_sliding_window": 64}, max_tokens=76)

Real: the config, whose groups of layers and blocks are the engine's; the scheduler and its cache manager. The model is
emulated: a state is a hash of all tokens up to it, and lies in the block of the last token of a step, as in `mamba_cache_mode`
align.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

from attnfix.patches.lab.proof import Observation

from .scheduling import Engine, Served, case

__all__ = ["CachedStates", "case", "conversations"]

_WORDS = 128


class Server:
    """Conversations whose turns repeat what was said. Wrong: a request begins with a state of other tokens than its prefix,
    or the engine ends."""

    def __init__(self, engine: Engine, seed: int):
        self.engine, self.draw = engine, random.Random(seed)
        groups = [group.kv_cache_spec for group in engine.kv_cache_config.kv_cache_groups]
        self.groups = [at for at, spec in enumerate(groups) if type(spec).__name__ == "MambaSpec"]
        self.size = groups[self.groups[0]].block_size
        self.states: dict[int, int] = {}  # block -> hash of the tokens before the state in it
        self.asked: dict[str, Any] = {}
        self.begun, self.wrong, self.log = 0, 0, hashlib.sha256()

    def talk(self, conversations: int, turns: int, words: int) -> None:
        """Several at a time. Each turn begins with a part of what was said, and goes on with half to all of so many words."""
        said: list[list[int]] = [[] for _ in range(conversations)]
        for _ in range(turns):
            said = [before[: self.draw.randint(len(before) // 2, len(before))] + self._words(words) for before in said]
            asked = [self.engine.add(tokens, output=2) for tokens in said]
            self.asked |= {request.request_id: request for request in asked}
            while any(not request.is_finished() for request in asked):
                try:
                    step = self.engine.schedule()
                except AssertionError:
                    self.wrong = self.begun = 1
                    return
                self.engine.finish(step, self._run(step))

    def _words(self, most: int) -> list[int]:
        return [self.draw.randrange(_WORDS) for _ in range(self.draw.randint(most // 2, most))]

    def _run(self, step: Any) -> dict[str, list[int]]:
        for source, target in getattr(step, "kv_cache_block_copies", None) or ():  # a block of which a part is cached
            self.states[target] = self.states.get(source, 0)
        for fresh in step.scheduled_new_reqs:
            if held := fresh.num_computed_tokens:
                found = {self.states.get(block) for block in self._blocks(fresh.req_id, held)}
                self.begun, self.wrong = self.begun + 1, self.wrong + (found != {self._before(fresh.req_id, held)})
        self.log.update(repr(sorted(step.num_scheduled_tokens.items())).encode())
        sampled = {}
        for name in step.num_scheduled_tokens:
            request = self.asked[name]
            end = request.num_computed_tokens  # with those of this step
            self.states |= dict.fromkeys(self._blocks(name, end), self._before(name, end))
            if end == request.num_tokens:
                sampled[name] = [self.draw.randrange(_WORDS)]
        return sampled

    def _blocks(self, name: str, end: int) -> list[int]:
        """Of each group of layers, that of the last of so many tokens."""
        tables = self.engine.scheduler.kv_cache_manager.get_block_ids(name)
        return [tables[group][(end - 1) // self.size] for group in self.groups]

    def _before(self, name: str, end: int) -> int:
        return hash(tuple(self.asked[name].all_token_ids[:end]))

    def observe(self) -> Observation:
        return Observation(self.wrong / max(self.begun, 1), self.log.hexdigest())


def conversations(words: int, at_once: int = 1) -> Callable[[Server], None]:
    return lambda server: server.talk(at_once, 6, words)


class CachedStates(Served):
    """Base of the proofs."""

    kernel = "none"
    kind = Server
    measure = "share of cached prefixes whose state is of other tokens; 1 where the engine ends"
