"""A runner for the scheduler of `scheduling`, whose layers say whose tokens a window holds: 0.11.1-0.33.0.

    with Windows(("full", "window"), drafts=2, blocks=60, ahead=True) as engine:
        runner = Runner(engine, seed=1)
        runner.ask(prompt=20, output=8)
        runner.step()
        runner.observe()    # the share of requests so far that read a token which is not theirs

Real: the scheduler, its cache manager and their steps. Emulated: a worker's tables of blocks, which learn of new blocks and of
resumed requests alone, and layers. In a step all tokens are written, then each query reads what it sees. A draft is accepted or
refused by lot. A proof derives from `Windowed`, and its cases say how a server is launched.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import fields
from importlib import import_module
from typing import Any

from attnfix.patches.lab.proof import Cases, Observation

from . import kernels
from .models import DENSE, folder_of
from .scheduling import SCHEDULER, Case, Engine, case

__all__ = ["NGRAM", "SCHEDULER", "Runner", "Windowed", "Windows", "served"]

#: Share of drafts that are accepted
KEPT = 0.2
#: How a layer sees: kind -> (class of its spec, the field of its width, how many tokens that is). A chunk is of whole blocks
KINDS = {
    "full": ("FullAttentionSpec", "", 0),
    "window": ("SlidingWindowSpec", "sliding_window", 40),
    "chunk": ("ChunkedLocalAttentionSpec", "attention_chunk_size", 48),
    "reference": ("RSWASpec", "rswa_window", 20),
}
_DRAFTER = {**DENSE, "architectures": ["EagleLlamaForCausalLM"], "num_hidden_layers": 1}


#: Drafts without a model, which are scheduled ahead
NGRAM = {"method": "ngram_gpu", "model": "ngram_gpu", "prompt_lookup_max": 4}


class Windows(Engine):
    """layers: their kinds. Drafts are EAGLE's, unless `speculative` names another method."""

    def __init__(self, layers: tuple[str, ...], *, drafts: int, **more: Any):
        self.layers = layers
        if drafts:
            more["speculative"] = {"method": "eagle", "model": folder_of(_DRAFTER)} | more.get("speculative", {})
        super().__init__(DENSE, drafts=drafts, **more)

    def _specs(self) -> dict[str, Any]:
        interface: Any = import_module("vllm.v1.kv_cache_interface")
        full = self.worker.spec(self.worker.layer())
        specs = {}
        for at, kind in enumerate(self.layers):
            name, field, width = KINDS[kind]
            cls = getattr(interface, name)
            given = {one.name: getattr(full, one.name) for one in fields(cls) if hasattr(full, one.name)}
            specs[f"model.layers.{at}"] = cls(**{**given, **({field: width} if field else {})})
        return specs


class _Request:
    def __init__(self, request: Any):
        self.request, self.known, self.computed = request, request.num_prompt_tokens, 0
        self.tables: list[list[int]] = []
        self.misled = False


class Runner:
    """What the worker and the layers of an engine do."""

    def __init__(self, engine: Engine, seed: int):
        self.engine, self.draw = engine, random.Random(seed)
        self.specs = [group.kv_cache_spec for group in engine.kv_cache_config.kv_cache_groups]
        self.requests: dict[str, _Request] = {}
        self.held: dict[int, tuple[str, int]] = {}  # slot -> (whose token, which)
        self.log: list[Any] = []

    def ask(self, prompt: int, output: int) -> None:
        request = self.engine.add([self.draw.randrange(1 << 30) for _ in range(prompt)], output)
        self.requests[request.request_id] = _Request(request)

    def step(self) -> Any:
        return self.engine.step(self._run)

    def observe(self) -> Observation:
        seen = [row.misled for row in self.requests.values() if row.tables]
        return Observation(sum(seen) / len(seen), hashlib.sha256(repr(self.log).encode()).hexdigest())

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
            kept = sum(self.draw.random() < KEPT for _ in range(drafts)) if ends else drafts
            last = row.computed + count - drafts + kept
            for table, spec in zip(row.tables, self.specs):
                self._read(row, name, table, spec, last)
            row.computed = last
            sampled[name] = [1] * (1 + kept) if ends else []
            row.known += len(sampled[name])
        self.log.append(sorted((name, self.requests[name].computed, self.requests[name].tables) for name in sampled))
        return (sampled,)

    def _read(self, row: _Request, name: str, table: list[int], spec: Any, last: int) -> None:
        for query in range(row.computed, last):
            for at in sees(spec, query, row.request.num_prompt_tokens):
                row.misled |= self.held.get(_slot(table, at, spec)) != (name, at)

    def _tables(self, step: Any) -> None:
        for new in step.scheduled_new_reqs:
            row = self.requests[new.req_id]
            row.tables, row.computed = [list(blocks) for blocks in new.block_ids], new.num_computed_tokens
        cached = step.scheduled_cached_reqs
        for at, name in enumerate(cached.req_ids):
            row, blocks = self.requests[name], cached.new_block_ids[at]
            if _resumed(cached, at, name):
                row.tables, row.computed = [list(each) for each in blocks], cached.num_computed_tokens[at]
            elif blocks is not None:
                for table, each in zip(row.tables, blocks):
                    table.extend(each)


def sees(spec: Any, query: int, prompt: int) -> Any:
    """Positions that a query reads."""
    kind, width = next((kind, width) for kind, (name, _, width) in KINDS.items() if name == type(spec).__name__)
    if kind == "reference":
        return [*range(min(prompt, query + 1)), *range(max(prompt, query + 1 - width), query + 1)]
    first = {"full": 0, "window": max(0, query + 1 - width), "chunk": query // max(width, 1) * width}[kind]
    return range(first, query + 1)


def _slot(table: list[int], at: int, spec: Any) -> int:
    return table[at // spec.block_size] * spec.block_size + at % spec.block_size


def _resumed(cached: Any, at: int, name: str) -> bool:
    if hasattr(cached, "resumed_req_ids"):
        return name in cached.resumed_req_ids
    return bool(cached.resumed_from_preemption[at])


def _busy(server: Runner) -> None:
    """More requests than there are blocks for: whatever is freed is taken at once."""
    for _ in range(20):
        server.ask(server.draw.randrange(10, 60), server.draw.randrange(40, 120))
    for _ in range(80):
        server.step()


class Windowed(Cases):
    """Base of the proofs: a case has the options of `Windows`."""

    kernel = "none"
    measure = "share of requests that read a token of another"

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def run(self, case: Case, seed: int) -> Observation:
        with Windows(**case.launch) as engine:
            server = Runner(engine, seed)
            case.talk(server)
            return server.observe()


def served(*layers: str, blocks: int, drafts: int, where: str = "", **more: Any) -> Case:
    """A server with these layers, which schedules ahead and has so many blocks."""
    sizes: dict[str, Any] = dict(blocks=blocks, max_tokens=64, context=256, max_requests=16)
    return case(_busy, where, layers=layers, drafts=drafts, **{"ahead": True, **sizes, **more})
