"""Proof of vllm.mamba-draft-count-assert: requests whose drafts are refused, and that have none in the next step.

Spared: requests that have as many drafts in each step, servers without drafts, and states that no other request gets.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

from attnfix.patches.lab.proof import Observation
from attnfix.patches.lab.vllm.scheduling import SCHEDULER, Engine, Served, case

from . import wrap

_MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"
#: Where the tokens of refused drafts are taken off, from 0.26.0
_COUNTED = f"{_MANAGERS}:MambaManager.remove_skipped_blocks: processed_computed_tokens"
_STEPS, _WORDS = 60, 128


class Server:
    """The scheduler, and requests that accept drafts by lot. Wrong: it ends, or a state's column has no block of its own."""

    def __init__(self, engine: Engine, seed: int):
        self.engine, self.draw = engine, random.Random(seed)
        self.wrong, self.seen, self.log = 0, 0, hashlib.sha256()
        groups = engine.kv_cache_config.kv_cache_groups
        self.states = [at for at, group in enumerate(groups) if type(group.kv_cache_spec).__name__ == "MambaSpec"]
        self.size = groups[self.states[0]].kv_cache_spec.block_size
        self.aligned = getattr(engine.config.cache_config, "mamba_cache_mode", "none") == "align"

    def run(self, undrafted: float) -> None:
        """undrafted: share of steps behind which a request has no drafts, as a grammar refuses them."""
        for _ in range(_STEPS):
            if len(self.engine.scheduler.requests) < 3:
                self.engine.add(
                    [self.draw.randrange(_WORDS) for _ in range(self.draw.randint(20, 60))], self.draw.randint(30, 60)
                )
            try:
                step = self.engine.schedule()
            except AssertionError:
                self.wrong = self.seen = 1
                return
            self._look(step)
            self.engine.finish(step, *self._sampled(step, undrafted))

    def _words(self, count: int) -> list[int]:
        return [self.draw.randrange(_WORDS) for _ in range(count)]

    def _sampled(self, step: Any, undrafted: float) -> tuple[dict[str, list[int]], set[str]]:
        sampled = {}
        for name in step.num_scheduled_tokens:
            request, drafts = self.engine.scheduler.requests[name], len(step.scheduled_spec_decode_tokens.get(name, ()))
            if request.num_computed_tokens - drafts >= request.num_tokens:
                sampled[name] = self._words(1 + self.draw.randint(0, drafts))
        return sampled, {name for name in sampled if self.draw.random() < undrafted}

    def _look(self, step: Any) -> None:
        """Of each request, the blocks in which the step's states are: the last one that it reaches, and one for each draft."""
        tables = {name: self.engine.scheduler.kv_cache_manager.get_block_ids(name) for name in step.num_scheduled_tokens}
        for at in self.states:
            held: list[int] = []
            for name, table in tables.items():
                column = -(-self.engine.scheduler.requests[name].num_computed_tokens // self.size) - 1 if self.aligned else 0
                held += table[at][column : column + 1 + self.engine.drafts]
            self.seen += 1
            self.wrong += 0 in held or len(set(held)) != len(tables) * (1 + self.engine.drafts)
        self.log.update(repr(sorted(tables.items())).encode())

    def observe(self) -> Observation:
        return Observation(self.wrong / self.seen, self.log.hexdigest())


def talk(undrafted: float) -> Callable[[Server], None]:
    return lambda server: server.run(undrafted)


SYNC: dict[str, Any] = {"mode": "align", "scheduler": {"async_scheduling": False}}


class Proof(Served):
    modules = (SCHEDULER, _MANAGERS)
    kernel = "none"
    kind = Server
    measure = "share of steps with a state that has no block of its own; 1 where the engine ends"
    needs = f"{_MANAGERS}:MambaManager.remove_skipped_blocks: num_speculative_blocks or " + _COUNTED
    absent = "no server has drafts and states by blocks"
    bug = (
        case(talk(0.3), drafts=2, **SYNC),
        case(talk(0.5), drafts=4, **SYNC),
    )
    spared = (
        case(talk(0.0), drafts=2, **SYNC),
        case(talk(0.0), drafts=0, **SYNC),
        case(talk(0.3), drafts=2, **{**SYNC, "mode": "none"}),
    )
    broken = {
        "the correction does nothing": (wrap.needed, lambda real, manager, tokens: 1 << 30),
        "each step has all the blocks it needs": (wrap.needed, lambda real, manager, tokens: 0),
    }
