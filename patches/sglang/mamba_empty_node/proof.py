"""Proof of sglang.mamba-empty-node: prompts of a hybrid model whose first page is cached, and then the cache is evicted.

Spared: pages of one token, prompts of which a whole page may be matched, and prompts of which none is cached. Real and played
parts: `lab.sglang.tracked_states`. A prompt whose logprobs are wanted is matched as the scheduler does it, and not computed.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation
from attnfix.patches.lab.sglang import tracked_states
from attnfix.patches.lab.sglang.engine import module

from . import wrap

_TREE, _RADIX, _REGISTRY = (f"sglang.srt.mem_cache.{name}" for name in ("mamba_radix_cache", "radix_cache", "registry"))
_CACHED = 53


class Case(NamedTuple):
    """A prompt of `same` tokens as in the cached one and `more` others.

    page: tokens of a page; logprobs: from which token on they are wanted; states: whether states are evicted first; keys: extra
    keys of the cached prompt and of this one; twice: whether it is matched once more before it is computed.
    """

    page: int
    same: int
    more: int = 0
    logprobs: int | None = None
    states: bool = False
    keys: tuple[str | None, str | None] = (None, None)
    twice: bool = False


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", _TREE, _RADIX, _REGISTRY)
    may_lack = (_TREE, _REGISTRY)
    kernel = "none"
    measure = "share of the cache that cannot be evicted"
    needs = f"{_RADIX}:RadixKey.limit"
    absent = "the part of a prompt that may be matched is a key of its own"
    bug = (Case(16, 16), Case(8, 8, states=True), Case(16, 30, 9, logprobs=5), Case(8, 53, 40, logprobs=7, states=True),
           Case(16, 16, keys=("a", "a")), Case(8, 8, twice=True))  # fmt: skip
    spared = (
        Case(1, 16), Case(1, 20, 9, logprobs=5), Case(16, 17), Case(16, 16, 1), Case(16, 15), Case(16, 53, 40, logprobs=0),
        Case(16, 53, 40, logprobs=16), Case(16, 0, 40, logprobs=5), Case(8, 53, 40, states=True), Case(8, 53, 40, 43),
        Case(16, 16, keys=("a", "b")), Case(16, 16, keys=("a", None)), Case(16, 17, twice=True),
    )  # fmt: skip
    around = {"`--page-size 1`": {"bug": tuple(case._replace(page=1) for case in bug)}}
    broken = {
        "the correction does nothing": (wrap.matched, lambda real, key: key),
        "prompts longer than a page are missed": (wrap.ends_within, lambda real, key, page: (
            real(key, page) and len(key.token_ids) == page
        )),
        "parts that lack one token are missed": (wrap.ends_within, lambda real, key, page: real(key, page - 1)),
    }  # fmt: skip

    def prepare(self) -> None:
        super().prepare()
        if not self._has(f"{_REGISTRY}:default_radix_cache_factory: MambaRadixCache"):
            raise NoSuchPath("no server has a MambaRadixCache")

    def run(self, case: Case, seed: int) -> Observation:
        draw = random.Random(seed)
        text = lambda tokens: [draw.randrange(64) for _ in range(tokens)]  # noqa: E731
        server = tracked_states.Server(tracked_states.serve("--page-size", str(case.page)))
        free, cached = server.allocator.available_size(), text(_CACHED)
        server.arrive(cached, text(2), case.keys[0])
        while server.step():
            pass
        server.arrive(cached[: case.same] + text(case.more), text(2), case.keys[1])
        request = server.waiting[0]
        if case.twice:
            request.init_next_round_input(server.tree)
        if case.logprobs is not None:
            server.waiting.clear()
            request.return_logprob, request.logprob_start_len = True, case.logprobs
            request.init_next_round_input(server.tree)
        while server.step():
            pass
        shape = [len(node.key) for node in server.tree._collect_all_nodes()]
        params = module("mem_cache.base_prefix_cache").EvictParams
        try:
            if case.states:
                server.tree.evict(params(num_tokens=0, mamba_num=free))
            server.tree.evict(params(num_tokens=free))
        except AssertionError as error:
            return Observation(1.0, str(error))
        left = free - server.allocator.available_size()
        return Observation(left / free, repr((shape, len(request.prefix_indices), server.continued, left)))
