"""Proof of sglang.draft-row-spill: a decode step of EAGLE for a request just below the context length and one behind it.

Real: `ServerArgs`, how wide a row of `req_to_token` gets, the pool of rows, the KV allocator, the step's allocation
(`eagle_prepare_for_decode`, before 0.5.15 `EagleDraftInput.prepare_for_decode`) and the Triton kernel that writes the slots, in
the interpreter.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, device, observe, replaced
from attnfix.patches.lab.sglang import construction
from attnfix.patches.lab.sglang.engine import accepted, module

_SIZING = "sglang.srt.mem_cache.allocation_sizing"  # from 0.5.16
_COMMON = "sglang.srt.mem_cache.common"
_EAGLE = "sglang.srt.speculative.eagle_utils"
_INFO = "sglang.srt.speculative.eagle_info_v2"  # up to 0.5.14
_POOL = "sglang.srt.mem_cache.memory_pool"
_ALLOCATOR = "sglang.srt.mem_cache.allocator"
_WIDTH = "get_req_to_token_extra_context_len"

#: What sglang chooses for Llama where nothing is named
_FLAGS = (
    "--attention-backend", "triton", "--speculative-algorithm", "EAGLE", "--speculative-num-steps", "5",
    "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "8",
)  # fmt: skip
_CHAIN = (*_FLAGS[:4], "--speculative-num-steps", "7", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "8")
_CONTEXT, _LONGEST, _SHORT = 128, 124, 30  # tokens: the longest request that gets one more


class Proof(proof.Proof):
    modules = (_SIZING, _COMMON, _POOL, _ALLOCATOR)
    may_lack = (_SIZING, _COMMON)
    kernel = "interpreted"
    measure = "share of requests with slots of others in their row"

    flags = _FLAGS
    around = {"`--speculative-eagle-topk 1` and at most 7 `--speculative-num-steps`": {"flags": _CHAIN}}

    _served: Any = None
    _allocator: Any = None
    _rows: Any = None

    def prepare(self) -> None:
        if not any(hasattr(self.engine.get(name), _WIDTH) for name in (_SIZING, _COMMON)):
            raise NoSuchPath(f"no {_WIDTH}")
        for name in (_EAGLE, _INFO):
            self.engine[name] = module(name.removeprefix("sglang.srt."))
        self._served = construction.serve(*self.flags, draft=False)
        kind, kv = self.engine[_ALLOCATOR].TokenToKVPoolAllocator, self._served.token_to_kv_pool
        about = {"size": 1024, "dtype": self._served.kv_cache_dtype, "device": device(), "kvcache": kv, "need_sort": False}
        self._allocator = kind(**accepted(kind, about))

    def scenario(self, seed: int) -> Observation:
        self._rows = self._pool()
        return self._step(self._rows, [_LONGEST, _SHORT])

    def control(self, seed: int) -> Observation:
        """The same pool, with requests that end before the context length."""
        return self._step(self._rows or self._pool(), [_CONTEXT - 50, _SHORT])

    def _pool(self) -> Any:
        """Rows of slots, as wide as the engine makes them."""
        home = next(one for name in (_SIZING, _COMMON) if hasattr(one := self.engine.get(name), _WIDTH))
        width = getattr(home, _WIDTH)
        extra = width(*([self._served.server_args] if width.__code__.co_argcount else []))
        return self.engine[_POOL].ReqToTokenPool(
            size=4, max_context_len=_CONTEXT + extra, device=device(), enable_memory_saver=False
        )  # fmt: skip

    def _step(self, pool: Any, lens: list[int]) -> Observation:
        import torch

        table, allocator = pool.req_to_token, self._allocator
        table.zero_()
        allocator.clear()
        for row, n in enumerate(lens, 1):
            table[row, :n] = allocator.alloc(n)
        before = table.clone()
        batch = _batch(lens, pool, allocator)
        if hasattr(self.engine.get(_EAGLE), "eagle_prepare_for_decode"):
            self.engine[_EAGLE].eagle_prepare_for_decode(batch)
        else:
            self.engine[_INFO].EagleDraftInputV2Mixin.prepare_for_decode(SimpleNamespace(), batch)
        kept = [torch.equal(table[row, :n], before[row, :n]) for row, n in enumerate(lens, 1)]
        bits = observe(*2 * (table[:, :_CONTEXT].double(),)).bits
        return Observation(1 - sum(kept) / len(lens), bits)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.given_ahead
        ways = {
            "the correction does nothing": lambda *_: 0,
            "room for one step alone": lambda *given: real(*given) // 2,
        }
        return {name: replaced(wrap, "given_ahead", way) for name, way in ways.items()}


def _batch(lens: list[int], pool: Any, allocator: Any) -> Any:
    """A running batch, as far as the allocation of a step goes."""
    import torch

    seq_lens = torch.tensor(lens, device=device())
    requests = []
    for n in lens:
        kv = {"kv_allocated_len": n, "kv_committed_len": n}
        requests.append(SimpleNamespace(**kv, kv=SimpleNamespace(**kv), decode_batch_idx=0))
    return SimpleNamespace(
        maybe_evict_swa=lambda: None, sampling_info=SimpleNamespace(penalizer_orchestrator=SimpleNamespace(is_required=False)),
        token_to_kv_pool_allocator=allocator, reqs=requests, device=device(), seq_lens=seq_lens, seq_lens_cpu=seq_lens.cpu(),
        seq_lens_sum=sum(lens), req_to_token_pool=pool, req_pool_indices=torch.arange(1, len(lens) + 1, device=device()),
        tree_cache=SimpleNamespace(
            token_to_kv_pool_allocator=allocator, is_chunk_cache=lambda: True, supports_prefix_sharing=lambda: False
        ),
        batch_size=lambda: len(lens), hisparse_coordinator=None,
    )  # fmt: skip
