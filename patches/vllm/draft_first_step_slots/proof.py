"""Proof of vllm.draft-first-step-slots: prompts that end at, or just before, the end of a block, and first chunks of prompts.

Real: the scheduler and its cache manager, by their own constructors. Emulated: the drafter, of which it is counted whether each
token that it writes behind a step has a block. Spared: prompts that leave room in their last block, and one draft.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

from attnfix.patches.lab.proof import Observation
from attnfix.patches.lab.vllm.scheduling import SCHEDULER, Engine, Served, case

from . import wrap

_UTILS = "vllm.v1.attention.backends.utils"
#: From 0.19.0. Before, a server that keeps states for others takes no drafts, or does not run them
_ALIGN = f"{_UTILS}:split_decodes_and_prefills: treat_short_extends_as_decodes"
_CHUNK = 64


class _Server:
    """Of each step: the tokens of each request, and how many of its blocks of attention there are."""

    def __init__(self, engine: Engine, seed: int):
        self.engine, self.draw = engine, random.Random(seed)
        groups = engine.kv_cache_config.kv_cache_groups
        kinds = [(type(group.kv_cache_spec).__name__, group.kv_cache_spec.block_size) for group in groups]
        self.group, self.size = next((at, size) for at, (name, size) in enumerate(kinds) if "Mamba" not in name)
        self.lacking = self.written = 0
        self.log: list[Any] = []

    def ask(self, prompt: int, output: int) -> None:
        self.engine.add([self.draw.randrange(1 << 30) for _ in range(prompt)], output)

    def step(self) -> None:
        self.engine.step(self._run)

    def _run(self, step: Any) -> tuple[Any, ...]:
        scheduler, sampled = self.engine.scheduler, {}
        for name, new in step.num_scheduled_tokens.items():
            request = scheduler.requests[name]
            end = request.num_computed_tokens  # the scheduler counts a step's tokens as it schedules them
            tables = scheduler.kv_cache_manager.get_block_ids(name)
            most = min(end + self.engine.drafts - 1, self.engine.config.model_config.max_model_len)
            self.written += most - end
            self.lacking += sum(at // self.size >= len(tables[self.group]) for at in range(end, most))
            self.log.append((new, end, tables))
            if end >= request.num_tokens:
                sampled[name] = [self.draw.randrange(1 << 30)]
        return sampled, set()

    def observe(self) -> Observation:
        bits = hashlib.sha256(repr(self.log).encode()).hexdigest()
        return Observation(self.lacking / max(self.written, 1), bits)


def prompts(*left: int) -> Callable[[_Server], None]:
    """Prompts that leave so many tokens of a block free, one after the other, and then at once."""

    def talk(server: _Server) -> None:
        lengths = [server.size * (1 + at) - free for at, free in enumerate(left)]
        for length in lengths:
            server.ask(length, 3)
            server.step()
        for length in lengths:
            server.ask(length, 6)
        for _ in range(7):
            server.step()

    return talk


def long_prompt(server: _Server) -> None:
    """In chunks, the first of which ends a block."""
    server.ask(2 * _CHUNK + 5, 4)
    for _ in range(6):
        server.step()


class Proof(Served):
    kind, kernel = _Server, "none"
    measure = "share of draft tokens without a slot"
    modules = (*Served.modules, _UTILS)
    needs = f"{SCHEDULER}:Scheduler.schedule: effective_lookahead_tokens"
    bug = (
        case(prompts(0, 1, 5), drafts=3, caching=False),
        case(prompts(0, 0), drafts=2, caching=False),
        case(long_prompt, drafts=2, caching=False, max_tokens=_CHUNK),
        case(prompts(1, 0, 2), drafts=4, mode="align", where=_ALIGN),
    )
    spared = (
        case(prompts(5, 2, 4), drafts=3, caching=False),
        case(prompts(0, 1), drafts=1, caching=False),
        case(prompts(0, 1), drafts=0, caching=False),
    )
    broken = {
        "no block is ever missing": (wrap.needs_a_block, lambda real, computed, drafts, sizes: False),
        "a block that is full counts as one with room": (
            wrap.needs_a_block,
            lambda real, computed, drafts, sizes: real(computed - 1, drafts, sizes),
        ),
        "one draft fewer is written": (wrap.behind, lambda real, scheduler: real(scheduler) - 1),
    }
