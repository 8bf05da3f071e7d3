"""Proof of vllm.dcp-decode-lse-base: decodes whose KV lies on two ranks, through the backend's own forward pass.

Real: configs, layer, its impl and the metadata's builder by their own constructors, `forward`, `fast_plan_decode`, the
combine over the ranks (its Triton kernel in the interpreter). Emulated: FlashInfer's decode wrapper, the write to the cache,
which holds the new tokens already, and the collectives: ranks are threads.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, cumulative, observe, replaced
from attnfix.patches.lab.vllm import dcp_ranks
from attnfix.patches.lab.vllm.construction import DENSE, Worker
from attnfix.patches.shared import lse_base

_BACKEND = "vllm.v1.attention.backends.flashinfer"

_RANKS, _HEADS, _D, _PAGE, _PAGES = 2, 2, 64, 16, 4  # query heads of each rank; tokens per page, pages per request and rank
_CONTEXT = (36, 40, 1, 63)  # before the new token


class _Decode(emulators.PagedWrapper):
    """FlashInfer's decode wrapper without CUDA graphs: one row of each request."""

    is_cuda_graph_enabled = False

    def plan(  # type: ignore[override]  # the decode wrapper takes no rows of queries
        self, indptr: Any, indices: Any, last_page_len: Any, heads: int, kv_heads: int, d: int, page: int, *others: Any,
        sm_scale: float = _D**-0.5, **more: Any,
    ) -> None:  # fmt: skip
        rows = cumulative((1,) * (len(indptr) - 1))
        super().plan(rows, indptr, indices, last_page_len, heads, kv_heads, d, page, causal=False, sm_scale=sm_scale)

    def run(self, q: Any, cache: Any, *, lse: Any = None, **options: Any) -> Any:  # type: ignore[override]
        result = super().run(q, cache, **options)
        if lse is not None:
            lse.copy_(result[1])
        return result


class _As:
    """The group as a rank sees it while it is constructed."""

    def __init__(self, group: dcp_ranks.Group, rank: int):
        self.world_size, self.rank_in_group = group.world_size, rank


def _forward(rank: int, steps: list, q: Any, kv: Any) -> Any:
    layer, metadata, cache = steps[rank]
    query = q[:, rank * _HEADS : (rank + 1) * _HEADS].contiguous()
    new = [part[range(len(_CONTEXT)), list(_CONTEXT)] for part in kv]
    out = query.new_empty(query.shape)
    return layer.impl.forward(layer, query, *new, cache, metadata, output=out)


class Proof(proof.Proof):
    modules = (_BACKEND,)

    def prepare(self) -> None:
        import torch

        backend: Any = self.engine[_BACKEND]
        if not hasattr(backend, "BatchDCPPrefillWrapper"):
            raise NoSuchPath("FlashInfer's backend knows no decode context parallelism")
        if "is_lse_base_on_e" in inspect.signature(backend.cp_lse_ag_out_rs).parameters:
            raise NoSuchPath("the combine is told the base")
        dcp_ranks.prepare(backend)
        ops: Any = torch.ops._C_cache_ops
        ops.reshape_and_cache_flash = lambda *args: None

    def scenario(self, seed: int) -> Observation:
        return combine(*(self._run(seed, 2, "bfloat16", layout) for layout in ("NHD", "HND")))

    def control(self, seed: int) -> Observation:
        """Another kernel, that of float16, whose LSE has the base that the ranks combine with."""
        return self._run(seed, math.e, "float16", "NHD")

    def _run(self, seed: int, base: float, dtype: str, layout: str) -> Observation:
        import torch

        backend, draw, group = self.engine[_BACKEND], torch.Generator().manual_seed(seed), dcp_ranks.Group(_RANKS)
        backend.BatchDecodeWithPagedKVCacheWrapper = lambda space, layout, **more: _Decode(base, layout)
        tensor = lambda *shape: torch.randn(*shape, generator=draw).to(getattr(torch, dtype))  # noqa: E731
        q, kv = tensor(len(_CONTEXT), _RANKS * _HEADS, _D), tensor(2, len(_CONTEXT), max(_CONTEXT) + 1, 1, _D)
        steps = []
        for rank in range(_RANKS):
            worker = Worker(
                {**DENSE, "head_dim": _D}, backend="flashinfer.FlashInferBackend", dtype=dtype, rank=rank, tp=4, dcp=_RANKS,
                page_size=_PAGE, layout=layout, dcp_group=_As(group, rank),
            )  # fmt: skip
            with worker:
                layer = worker.layer()
                metadata = worker.builder([layer]).build(0, worker.batch(_CONTEXT, (1,) * len(_CONTEXT), pages=_PAGES))
            cache = torch.zeros(len(_CONTEXT), 2, _PAGES * _PAGE, 1, _D, dtype=q.dtype)
            for b, n in enumerate(_CONTEXT):
                mine = [token for token in range(n + 1) if worker.holds(token)]
                cache[b, :, : len(mine)] = kv[:, b, mine]
            pages = cache.view(len(_CONTEXT), 2, _PAGES, _PAGE, 1, _D).transpose(1, 2).flatten(0, 1)
            steps.append((layer, metadata, pages))
        with worker, replaced(backend, "get_dcp_group", lambda: group):
            outs = group.on_all(_forward, steps, q, kv)
        found = [kv[:, b, : n + 1].expand(-1, -1, _RANKS * _HEADS, -1) for b, n in enumerate(_CONTEXT)]
        reference = [emulators.attention(q[b : b + 1], k, v, _D**-0.5)[0] for b, (k, v) in enumerate(found)]
        return combine(*(observe(*token) for token in zip(torch.cat(outs, 1), torch.cat(reference))))

    def sabotages(self) -> dict[str, Any]:
        real = lse_base.scale

        def one_row_missed(lse: Any) -> None:
            row = _CONTEXT.index(min(_CONTEXT))  # of few keys: the ranks' LSEs are far apart, and their base counts
            kept = lse[row].clone()
            real(lse)
            lse[row] = kept

        return {
            "the correction does nothing": replaced(lse_base, "scale", lambda lse: None),
            "from base e to base 2": replaced(lse_base, "scale", lambda lse: lse.div_(math.log(2))),
            "converted twice": replaced(lse_base, "scale", lambda lse: (real(lse), real(lse))),
            "one row is missed": replaced(lse_base, "scale", one_row_missed),
        }
