"""A runner for the scheduler of `scheduling`, whose layers say whose tokens a window holds: 0.11.1-0.33.0.

    with Windows(WINDOW, drafts=2, blocks=20, ahead=True) as engine:
        runner = Runner(engine, seed=1)
        runner.ask(prompt=20, output=8)
        runner.step()
        runner.wrong    # tokens that were read and are not the request's, so far; of runner.seen

Real: the scheduler, its cache manager and their steps. Emulated: a worker's tables of blocks, which learn of new blocks and of
resumed requests alone, and layers: in a step all tokens are written, then each query reads what it sees. A draft is accepted or
refused by lot.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from typing import Any

from attnfix.patches.lab.proof import Observation

from .models import DENSE, folder_of
from .scheduling import Engine

#: Tokens that a layer sees, or of a chunk
WIDTH = 40
#: How a layer sees: kind -> (class of its spec, the field of its width); of a full layer, nothing
KINDS = {
    "full": ("FullAttentionSpec", ""),
    "window": ("SlidingWindowSpec", "sliding_window"),
    "chunk": ("ChunkedLocalAttentionSpec", "attention_chunk_size"),
    "reference": ("RSWASpec", "rswa_window"),
}
DRAFTER = {**DENSE, "architectures": ["EagleLlamaForCausalLM"], "num_hidden_layers": 1}


class Windows(Engine):
    """layers: their kinds, each once or several times."""

    def __init__(self, *layers: str, drafts: int, **more: Any):
        self.layers = layers
        if drafts:
            more["speculative"] = {"method": "eagle", "model": folder_of(DRAFTER), **more.get("speculative", {})}
        super().__init__(DENSE, drafts=drafts, **more)

    def _specs(self) -> dict[str, Any]:
        interface: Any = import_module("vllm.v1.kv_cache_interface")
        full = self.worker.spec(self.worker.layer())
        specs = {}
        for at, kind in enumerate(self.layers):
            name, width = KINDS[kind]
            cls = getattr(interface, name)
            given = {field.name: getattr(full, field.name) for field in fields(cls) if hasattr(full, field.name)}
            specs[f"model.layers.{at}"] = cls(**{**given, **({width: WIDTH} if width else {})})
        return specs


class _Request:
    def __init__(self, request: Any):
        self.request, self.known, self.computed = request, request.num_prompt_tokens, 0
        self.tables: list[list[int]] = []


class Runner:
    """keeps: the share of drafts that are accepted."""

    def __init__(self, engine: Windows, seed: int, keeps: float = 0.5):
        self.engine, self.draw, self.keeps = engine, random.Random(seed), keeps
        self.requests: dict[str, _Request] = {}
        self.held: dict[int, tuple[str, int]] = {}  # slot -> (whose token, which)
        self.wrong = self.seen = self.resumed = 0
        self.log: list[Any] = []
        self.specs = [group.kv_cache_spec for group in engine.kv_cache_config.kv_cache_groups]

    def ask(self, prompt: int, output: int) -> Any:
        request = self.engine.add([self.draw.randrange(1 << 30) for _ in range(prompt)], output)
        self.requests[request.request_id] = _Request(request)
        return request

    def step(self) -> Any:
        return self.engine.step(self._run)

    def observe(self) -> Observation:
        return Observation(self.wrong / max(self.seen, 1), hashlib.sha256(repr(self.log).encode()).hexdigest())

    def _run(self, step: Any) -> tuple[dict[str, list[int]]]:
        self._tables(step)
        for name, count in step.num_scheduled_tokens.items():
            row = self.requests[name]
            for table, spec in zip(row.tables, self.specs):
                for at in range(row.computed, row.computed + count):
                    self.held[_slot(table, at, spec)] = (name, at)
        sampled = {}
        for name, count in step.num_scheduled_tokens.items():
            row, drafts = self.requests[name], len(step.scheduled_spec_decode_tokens.get(name, ()))
            ends = row.computed + count - drafts >= row.known
            kept = sum(self.draw.random() < self.keeps for _ in range(drafts)) if ends else drafts
            last = row.computed + count - drafts + kept
            for table, spec in zip(row.tables, self.specs):
                self._read(row, name, table, spec, last)
            row.computed = last
            sampled[name] = [1] * (1 + kept) if ends else []
            row.known += len(sampled[name])
        self.log.append(sorted((name, self.requests[name].computed) for name in sampled))
        return (sampled,)

    def _read(self, row: _Request, name: str, table: list[int], spec: Any, last: int) -> None:
        for query in range(row.computed, last):
            for at in sees(spec, query, row.request.num_prompt_tokens):
                self.seen += 1
                self.wrong += self.held.get(_slot(table, at, spec)) != (name, at)

    def _tables(self, step: Any) -> None:
        for new in step.scheduled_new_reqs:
            row = self.requests[new.req_id]
            row.tables, row.computed = [list(blocks) for blocks in new.block_ids], new.num_computed_tokens
        cached = step.scheduled_cached_reqs
        for at, name in enumerate(cached.req_ids):
            row, blocks = self.requests[name], cached.new_block_ids[at]
            if _resumed(cached, at, name):
                self.resumed += 1
                row.tables, row.computed = [list(each) for each in blocks], cached.num_computed_tokens[at]
            elif blocks is not None:
                for table, each in zip(row.tables, blocks):
                    table.extend(each)


def sees(spec: Any, query: int, prompt: int) -> Any:
    """Positions that a query reads."""
    kind = next(kind for kind, (name, _) in KINDS.items() if name == type(spec).__name__)
    if kind == "reference":
        return [*range(min(prompt, query + 1)), *range(max(prompt, query + 1 - WIDTH), query + 1)]
    first = {"full": 0, "window": max(0, query + 1 - WIDTH), "chunk": query // WIDTH * WIDTH}[kind]
    return range(first, query + 1)


def _slot(table: list[int], at: int, spec: Any) -> int:
    return table[at // spec.block_size] * spec.block_size + at % spec.block_size


def _resumed(cached: Any, at: int, name: str) -> bool:
    if hasattr(cached, "resumed_req_ids"):
        return name in cached.resumed_req_ids
    return bool(cached.resumed_from_preemption[at])
