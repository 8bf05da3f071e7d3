"""Proof of sglang.lora-prefix-key: requests with adapters and with keys of their own, one after another, by the radix cache.

Each request is made, looked up, and cached. Spared: keys that no adapter has, servers without adapters, and servers
whose keys others read.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation
from attnfix.patches.lab.sglang import construction
from attnfix.patches.lab.sglang.engine import module

from . import wrap

_PROMPT = 75
_LORA = ("--enable-lora", "--max-lora-rank", "16", "--lora-target-modules", "q_proj")
#: Radix cache of all models in the newest releases; places that say how a server was launched
_COMPONENTS, _CONTEXT = "sglang.srt.mem_cache.unified_cache.components", "sglang.srt.runtime_context"
_UNIFIED = f"{_COMPONENTS}:ComponentType"
_SAYS = f"sglang.srt.server_args:get_global_server_args or {_CONTEXT}:get_server_args"


class Ask(NamedTuple):
    """A request with the tokens of those before it. It is answered from the cache where it is `like` an earlier one."""

    adapter: str | None = None
    key: str | None = None
    like: bool = False


class Case(NamedTuple):
    asks: tuple[Ask, ...]
    page: int = 1
    flags: tuple[str, ...] = _LORA
    unified: bool = False
    #: The place that a release needs for this case
    where: str = ""


A, B = "0123456789abcdef" * 2, "f" * 32
_THEN_BASE = (Ask(A), Ask(key=A), Ask(key=A, like=True), Ask(A, like=True), Ask(B), Ask(key=B))
_BASE_FIRST = (Ask(key=A), Ask(A), Ask(A, like=True), Ask(key=A, like=True))
_SPLIT = (Ask(A, "tenant"), Ask(key="tenant" + A), Ask(B, "tenant"), Ask(B, "tenant" + A), Ask(key="tenant" + A + B))
_NULS = (Ask(A), Ask(key=A), Ask(key=A + "\0"), Ask(key=A + "\0\0"), Ask(key=A + "\0", like=True), Ask(A, "\0"))
_OTHERS = (
    Ask(), Ask(like=True), Ask(key="tenant"), Ask(key="tenant", like=True), Ask(A), Ask(A, like=True), Ask(A, "tenant"), Ask(B),
    Ask(key=A + "."), Ask(key=A[1:]), Ask(key=A[1:], like=True), Ask(key=A[1:] + "A"), Ask(key="\0"), Ask(key=A + "\n"),
)  # fmt: skip
_KEYS = (Ask(key=A), Ask(key=A, like=True), Ask(key="tenant" + A), Ask(key=B), Ask(key=A, like=True), Ask())
_STORED = ("--enable-hierarchical-cache", "--hicache-storage-backend", "file")
_EVENTS = ("--kv-events-config", '{"publisher": "zmq", "endpoint": "tcp://*:5557"}')


class Proof(Cases):
    modules = (
        "sglang.srt.managers.schedule_batch", "sglang.srt.mem_cache.radix_cache", "sglang.srt.server_args",
        _CONTEXT, _COMPONENTS,
    )  # fmt: skip
    may_lack = (_CONTEXT, _COMPONENTS)
    kernel = "none"
    measure = "share of tokens that are cached wrongly, or missed"
    needs = "Req.__init__: extra_key"
    absent = "requests have no extra_key"
    bug = (
        Case(_THEN_BASE), Case(_THEN_BASE, 16), Case(_BASE_FIRST, 8), Case(_SPLIT), Case(_NULS), Case(_NULS, 16),
        Case(_THEN_BASE, 4, unified=True, where=_UNIFIED), Case(_BASE_FIRST, unified=True, where=_UNIFIED),
    )  # fmt: skip
    spared = (
        Case(_OTHERS), Case(_OTHERS, 16), Case(_OTHERS, 8, unified=True, where=_UNIFIED), Case(_KEYS, flags=(), where=_SAYS),
        Case(_KEYS, 8, (*_LORA, *_STORED), where=_SAYS), Case(_KEYS, flags=(*_LORA, *_EVENTS), where=_SAYS),
    )  # fmt: skip
    cached = True
    around = {"`--disable-radix-cache`": {"cached": False}}
    broken = {
        "the correction does nothing": (wrap.apart, lambda real, key: key),
        "the key is lost": (wrap.apart, lambda real, key: None),
        "one key for all": (wrap.apart, lambda real, key: real("")),
    }

    def run(self, case: Case, seed: int) -> Observation:
        flags = case.flags if self.cached else (*case.flags, "--disable-radix-cache")
        construction.publish(construction.server_args(*flags))
        tree = _tree(case.unified, case.page) if self.cached else _no_tree(case.page)
        prompt = [(seed + 7 * at) % 1000 for at in range(_PROMPT)]
        hits = []
        for number, ask in enumerate(case.asks):
            request = _request(f"request-{number}", ask, prompt)
            request.init_next_round_input(tree)
            hits.append(len(request.prefix_indices) if hasattr(request, "prefix_indices") else request.prefix_len)
            _insert(tree, request, prompt[: _PROMPT // case.page * case.page])
        right = [(_PROMPT - 1) // case.page * case.page if ask.like and self.cached else 0 for ask in case.asks]
        wrong = sum(abs(one - other) for one, other in zip(hits, right, strict=True))
        return Observation(wrong / (_PROMPT * len(hits)), hashlib.sha256(repr(hits).encode()).hexdigest())


def _request(name: str, ask: Ask, prompt: list[int]) -> Any:
    schedule, sampling = module("managers.schedule_batch"), module("sampling.sampling_params")
    wanted = sampling.SamplingParams(max_new_tokens=1)
    make = lambda tokens: schedule.Req(  # noqa: E731
        name, "", tokens, wanted, lora_id=ask.adapter, extra_key=ask.key, vocab_size=1000
    )
    kind = make([]).output_ids  # a list, or an array in later releases
    kind.extend(prompt)
    return make(kind)


def _insert(tree: Any, request: Any, tokens: list[int]) -> None:
    """Caches the prompt, as a request that ends does."""
    import torch

    key = module("mem_cache.radix_cache").RadixKey(request.origin_input_ids[: len(tokens)], request.extra_key)
    slots = torch.arange(len(tokens))
    params = getattr(module("mem_cache.base_prefix_cache"), "InsertParams", None)
    if hasattr(tree, "insert"):
        tree.insert(params(key=key, value=slots)) if params else tree.insert(key, slots)


class _NoPool:
    """An allocator that takes freed slots, and has none to give."""

    device = "cpu"

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("free"):
            raise AttributeError(name)
        return lambda *_, **__: None


_NO_POOLS: dict[str, Any] = dict.fromkeys(("req_to_token_pool", "token_to_kv_pool_allocator"))


def _no_tree(page: int) -> Any:
    """What a server has in its place with --disable-radix-cache."""
    chunks, params = module("mem_cache.chunk_cache"), module("mem_cache.cache_init_params")
    if chunks is None:  # 0.5.22 and later
        return _tree(True, page, disable=True)
    given = {**_NO_POOLS, "page_size": page}
    return chunks.ChunkCache(params.CacheInitParams(disable=True, **given)) if params else chunks.ChunkCache(**given)


def _tree(unified: bool, page: int, disable: bool = False) -> Any:
    """The radix cache of models with full attention. A machine without a GPU keeps no KV, so that slots are numbers alone."""
    given = {**_NO_POOLS, "disable": disable, "page_size": page}
    params = module("mem_cache.cache_init_params")
    if unified:
        given["tree_components"] = (module("mem_cache.unified_cache.components").ComponentType.FULL,)
        given["token_to_kv_pool_allocator"] = _NoPool()
        return module("mem_cache.unified_radix_cache").UnifiedRadixCache(params.CacheInitParams(**given))
    kind = module("mem_cache.radix_cache").RadixCache
    return kind(params.CacheInitParams(**given)) if params else kind(**given)
