"""Proof of sglang.window-recovery: a request decodes behind a prefix whose window KV is evicted, and another one is cached.

Spared: prefixes that nobody has locked, window pools in which all fits, and prompts that have nothing of that prefix. Real and
played parts: `lab.sglang.window_cache`.
"""

from __future__ import annotations

import hashlib
import random
from typing import NamedTuple

from attnfix.patches.lab.proof import Cases, Observation
from attnfix.patches.lab.sglang.window_cache import Server

from . import wrap

_TREE, _HOMES = "sglang.srt.mem_cache.swa_radix_cache", ("allocator.swa", "swa_memory_pool", "allocator")
_PAGES = " or ".join(f"sglang.srt.mem_cache.{home}:SWATokenToKVPoolAllocator.__init__: page_size" for home in _HOMES)
_POOLS = ("swa_memory_pool", "memory_pool")
_LATE = " or ".join(f"sglang.srt.mem_cache.{home}:SWAKVPool.set_kv_buffer: translate_loc_from_full_to_swa" for home in _POOLS)
_LONG, _WINDOW = 48, 8


class Case(NamedTuple):
    """A prompt of `same` tokens of the prefix and `more` others; its answer begins with `said` tokens of the prefix.

    running: whether another request decodes behind the prefix meanwhile; near: slots of window layers; busy: turns of requests
    that come at random, in the place of all that.
    """

    page: int = 1
    chunk: int | None = None
    overlap: bool = True
    same: int = 26
    more: int = 10
    said: int = 0
    running: bool = True
    near: int = 112
    busy: int = 0
    where: str = ""


class Proof(Cases):
    modules = (
        _TREE, "sglang.srt.managers.schedule_batch", "sglang.srt.mem_cache.memory_pool",
        *(f"sglang.srt.mem_cache.{home}" for home in _HOMES),
    )  # fmt: skip
    may_lack = (_TREE, *modules[3:])
    kernel = "none"
    needs = "SWARadixCache._insert_helper"
    absent = "all models have the unified radix cache"
    measure = "share of requests that read KV of others"
    bug = (
        Case(), Case(overlap=False), Case(chunk=16), Case(chunk=16, overlap=False), Case(same=44, chunk=12),
        Case(same=10, said=24, near=160), Case(same=10, said=36, near=160, overlap=False),
        Case(4, 16, where=_PAGES), Case(4, 16, same=44, where=_PAGES), Case(4, same=12, said=24, near=160, where=_PAGES),
        Case(same=10, more=0, said=24, near=160), Case(4, same=12, more=0, said=26, near=160, where=_PAGES),
        Case(4, 16, near=128, busy=200, where=_PAGES),
    )  # fmt: skip
    spared = (
        Case(running=False), Case(running=False, chunk=16), Case(near=256), Case(near=256, chunk=16),
        Case(same=0, more=36, chunk=16),
        Case(4, 16, running=False, where=_PAGES), Case(same=10, said=24, near=160, running=False),
    )  # fmt: skip
    broken = {
        "the correction does nothing": (wrap.locked, lambda real, node: False),
        "slots that a step in flight writes are given back at once": (wrap.in_flight, lambda real, request: False),
        "window slots are lost": (wrap.take, lambda real, tree, kept, slots: None),
    }
    broken_where = {"slots that a step in flight writes are given back at once": _LATE}

    def run(self, case: Case, seed: int) -> Observation:
        draw = random.Random(seed)
        server = Server(case.page, _WINDOW, (224, case.near), case.chunk, case.overlap)
        try:
            _busy(server, case.busy, draw) if case.busy else _play(server, case, draw)
            while server.step():
                pass
            server.tree.sanity_check()
        except RuntimeError as error:  # no slot is left, though the tree says so
            return Observation(1.0, str(error))
        seen = (server.batches, server.full.tolist(), server.near.tolist(), _shape(server.tree))
        wrong = 1.0 if server.lost() else len(server.wrong) / len(server.texts)
        return Observation(wrong, hashlib.sha256(repr(seen).encode()).hexdigest())


def _shape(tree) -> list:
    return sorted((len(node.value), node.swa_tombstone, list(map(int, node.value))) for node in tree._collect_all_nodes())


def _text(draw: random.Random, tokens: int) -> list[int]:
    return [draw.randrange(1, 64) for _ in range(tokens)]


def _play(server: Server, case: Case, draw: random.Random) -> None:
    def others(prompts: int, tokens: int) -> None:
        for _ in range(prompts):
            server.arrive(_text(draw, tokens), _text(draw, 2))
            for _ in range(6):
                server.step()

    prefix = _text(draw, _LONG)
    for end in (20, 32, 40, _LONG):  # nodes of which the window locks the last
        server.arrive(prefix[:end], _text(draw, 2))
        while server.step():
            pass
    if case.running:
        server.arrive(prefix + _text(draw, 3), _text(draw, 128 if case.said else 80))
    else:
        server.arrive(_text(draw, 3), _text(draw, 128 if case.said else 80))
    others(case.near // 35 if case.said else 3, 30)
    server.arrive(prefix[: case.same] + _text(draw, case.more), prefix[case.same :][: case.said] + _text(draw, 3))
    for _ in range(6 + case.said):
        server.step()
    others(6, 30)


def _busy(server: Server, turns: int, draw: random.Random) -> None:
    """Requests that share long prefixes, and such that share none, come at random."""
    prefixes = [_text(draw, _LONG) for _ in range(2)]
    for _ in range(turns):
        if len(server.waiting) < 2 and draw.random() < 0.2:
            begin = draw.choice(prefixes)[: draw.randrange(_LONG + 1)]
            server.arrive(begin + _text(draw, draw.randrange(1, 12)), _text(draw, draw.randrange(1, 24)))
        if server.running and server.running.reqs and draw.random() < 0.02:
            server.abort(server.running.reqs[0])
        server.step()
