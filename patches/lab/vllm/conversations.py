"""Conversations behind the scheduler of `scheduling`, for proofs about the tokens that a cached prefix is of: 0.15.0-0.33.0.

Real: the scheduler, the cache manager and the config that they are made of. Emulated: the runner and the layers. A state is a
chain over the tokens that went into it, as a recurrence is, and lies in the blocks that the runner keeps it in; a key lies in
the slot of its token. Other tokens give another chain: what a request reads is right, or it is not.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

from attnfix.patches.lab.proof import Observation

from .scheduling import Engine
from .states import WORDS, chain, chains

_END = 12  # where in a block a prompt ends


class _Running:
    """A request in the runner: its known tokens, how many of them went into the state, and the state."""

    def __init__(self, tokens: list[int], held: int):
        self.tokens, self.held, self.state = tokens, held, 0


class Conversations:
    """The engine, and a runner whose layers say what they read."""

    def __init__(self, engine: Engine, seed: int):
        self.engine, self.draw = engine, random.Random(seed)
        self.size = engine.config.cache_config.block_size
        kinds = [type(group.kv_cache_spec).__name__ for group in engine.kv_cache_config.kv_cache_groups]
        self.of_states = [at for at, kind in enumerate(kinds) if kind == "MambaSpec"]
        self.of_attention = [at for at, kind in enumerate(kinds) if kind != "MambaSpec"]
        self.states: dict[tuple[int, int], int] = {}  # (group, block) -> chain
        self.keys: dict[tuple[int, int], int] = {}  # (block, offset) -> chain, of attention's groups alike
        self.requests: dict[str, Any] = {}
        self.running: dict[str, _Running] = {}
        self.seen: list[tuple] = []  # all that was scheduled, and how each cached prefix was
        self.hits = self.wrong = 0

    def words(self, count: int) -> list[int]:
        return [self.draw.randrange(WORDS) for _ in range(count)]

    def ask(self, said: list[int], asked: tuple[int, int], answered: tuple[int, int]) -> Any:
        """The prompt ends late in a block: an answer of some tokens fills it, and the next turn finds its state."""
        more = self.draw.randint(*asked)
        more += (_END - len(said) - more) % self.size
        request = self.engine.add(said + self.words(more), self.draw.randint(*answered))
        self.requests[request.request_id] = request
        return request

    def step(self) -> None:
        step = self.engine.schedule()
        self.engine.finish(step, self._run(step))

    def _run(self, step: Any) -> dict[str, list[int]]:
        """The tokens that each request gets."""
        cached = step.scheduled_cached_reqs
        starts = {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
        resumed = getattr(cached, "resumed_req_ids", ())
        starts |= {name: held for name, held in zip(cached.req_ids, cached.num_computed_tokens) if name in resumed}
        for name, held in starts.items():
            self._begin(name, held)
        sampled = {}
        for name, tokens in step.num_scheduled_tokens.items():
            drafts = len(step.scheduled_spec_decode_tokens.get(name, ()))
            sampled[name] = self._compute(name, self.running[name], tokens - drafts, drafts)
            self.seen.append((name, tokens, drafts, len(sampled[name])))
        return sampled

    def _begin(self, name: str, held: int) -> None:
        """A request begins behind a cached prefix: with the state of its last block, and the keys of all of them."""
        running = self.running[name] = _Running(list(self.requests[name].all_token_ids), held)
        if not held:
            return
        tables, size = self._tables(name), self.size
        states = [self.states.get((group, tables[group][held // size - 1])) for group in self.of_states]
        running.state = states[0] or 0
        keys = [self.keys.get((tables[group][at // size], at % size)) for group in self.of_attention for at in range(held)]
        right = [chain(running.tokens[:held])] * len(states), chains(running.tokens[:held]) * len(self.of_attention)
        self.hits += 1
        self.wrong += (states, keys) != right
        self.seen.append((name, held, states, hash(tuple(keys))))

    def _compute(self, name: str, running: _Running, tokens: int, drafts: int) -> list[int]:
        """Known tokens, and drafts behind them. As the runner does in mode "align": the state behind the known tokens is in the
        block of the last token that was scheduled, and in a block that accepted drafts have filled is that of its end."""
        begin, known = running.held, running.held + tokens
        accepted = self.draw.randint(0, drafts)
        sampled = self.words(1 + accepted) if known == len(running.tokens) else []
        running.tokens += sampled
        after = chains(running.tokens[begin : known + accepted], running.state)
        running.held, running.state = known + accepted, after[-1]
        tables, size = self._tables(name), self.size
        filled = running.held // size * size
        for group in self.of_states:
            self.states[group, tables[group][(known + drafts - 1) // size]] = after[tokens - 1]
            if filled >= known:
                self.states[group, tables[group][filled // size - 1]] = after[filled - begin - 1]
        for group in self.of_attention:
            for at, key in enumerate(after, begin):
                self.keys[tables[group][at // size], at % size] = key
        return sampled

    def _tables(self, name: str) -> Any:
        return self.engine.scheduler.kv_cache_manager.get_block_ids(name)

    def observe(self) -> Observation:
        bits = hashlib.sha256(repr(self.seen).encode()).hexdigest()
        return Observation(self.wrong / max(self.hits, 1), bits)


def talks(count: int, turns: int, asked: tuple[int, int], answered: tuple[int, int]) -> Callable[[Conversations], None]:
    """So many conversations at the same time: each turn repeats what was said before, and asks on."""

    def talk(server: Conversations) -> None:
        left = {server.ask([], asked, answered): turns - 1 for _ in range(count)}
        for _ in range(20_000):
            server.step()
            for request in [request for request in left if request.is_finished()]:
                more = left.pop(request)
                if more:
                    left[server.ask(list(request.all_token_ids), asked, answered)] = more - 1
            if not left:
                return
        raise AssertionError("a request waits for ever")

    return talk
