"""FlashInfer's prefill under decode context parallelism through real vLLM code on the CPU, on two ranks.

Real: `BatchDCPPrefillWrapper` with its plan, the combine over the ranks (its Triton kernel in the interpreter), the merge's
Python entry. Emulated: FlashInfer's ragged and paged wrapper, the CUDA merge (put in place by `mla_prefill`), and the
collectives, by `dcp_ranks`.
"""

from __future__ import annotations

from inspect import signature
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import cumulative
from attnfix.patches.lab.vllm import dcp_ranks
from attnfix.patches.lab.vllm.dcp_ranks import Group

BACKEND = "vllm.v1.attention.backends.flashinfer"

RANKS, HEADS, D, PAGE, PAGES = 2, 2, 64, 4, 16  # query heads of each rank; tokens per page, pages per request and rank


def prepare(backend: Any) -> bool:
    """Put the stand-ins in place, in the module BACKEND or None. Whether the release has this path."""
    if not hasattr(backend, "BatchDCPPrefillWrapper"):
        return False
    dcp_ranks.prepare(backend)
    return True


def use(backend: Any, lse_base: float) -> None:
    """Put new stand-ins for FlashInfer's wrappers in place, whose LSE has that base."""
    backend.BatchPrefillWithRaggedKVCacheWrapper = lambda *args, **kwargs: emulators.RaggedWrapper(lse_base)
    backend.BatchPrefillWithPagedKVCacheWrapper = lambda workspace, layout: emulators.PagedWrapper(lse_base, layout)


def outputs(
    backend: Any, seed: int, context: tuple[int, ...], new: tuple[int, ...], layout: str, dtype: str
) -> tuple[Any, Any]:
    """(out, float64 reference) of the new tokens, [tokens, heads of all ranks, d].

    context, new: tokens of each request; token i of a context lies on rank i % 2. layout: of the cache, NHD or HND.
    """
    import torch

    draw = torch.Generator().manual_seed(seed)
    tensor = lambda *shape: torch.randn(*shape, generator=draw).to(getattr(torch, dtype))  # noqa: E731
    q, k, v = tensor(sum(new), RANKS * HEADS, D), tensor(sum(new), 1, D), tensor(sum(new), 1, D)
    cached = tensor(2, len(context), max(context), 1, D)
    group = Group(RANKS)
    backend.get_dcp_group = lambda: group
    backend.get_kv_cache_layout = lambda: layout
    outs = group.on_all(_run, backend, q, k, v, cached, context, new, layout)

    at, reference = cumulative(new).tolist(), []
    for b, n in enumerate(context):
        rows = slice(at[b], at[b + 1])
        all_k, all_v = (torch.cat([part[b, :n], x[rows]]).expand(-1, RANKS * HEADS, -1) for part, x in zip(cached, (k, v)))
        reference.append(emulators.attention(q[rows], all_k, all_v, D**-0.5, causal=True)[0])
    return torch.cat(outs, 1), torch.cat(reference)


def _run(rank: int, backend: Any, q: Any, k: Any, v: Any, cached: Any, context: tuple, new: tuple, layout: str) -> Any:
    """One rank: its wrapper planned and run, as the metadata builder and the layer do."""
    import torch

    local = [len(range(rank, n, RANKS)) for n in context]
    cache = torch.zeros(2, len(context) * PAGES, PAGE, 1, D, dtype=q.dtype)
    for b, n in enumerate(local):
        cache.view(2, len(context), PAGES * PAGE, 1, D)[:, b, :n] = cached[:, b, rank : context[b] : RANKS]
    pages = [-(-n // PAGE) for n in local]
    cls = backend.BatchDCPPrefillWrapper
    wrapper = cls(kv_layout=layout) if "kv_layout" in signature(cls).parameters else cls()
    arguments = dict(
        qo_indptr_cpu=cumulative(new), paged_kv_indptr_cpu=cumulative(pages),
        paged_kv_indices=torch.cat([torch.arange(b * PAGES, b * PAGES + n, dtype=torch.int32) for b, n in enumerate(pages)]),
        paged_kv_last_page_len_cpu=torch.tensor([n - (p - 1) * PAGE if n else 0 for n, p in zip(local, pages)]),
        kv_lens_cpu=torch.tensor(local), block_tables=None, prefill_start=0, page_size=PAGE, num_qo_heads=HEADS,
        dcp_world_size=RANKS, num_kv_heads=1, head_dim=D, sm_scale=D**-0.5, window_left=-1, logits_soft_cap=None,
        q_data_type=q.dtype, kv_cache_dtype=q.dtype, prefill_fixed_split_size=-1, disable_split_kv=False,
    )  # fmt: skip
    wrapper.plan(**{name: arguments[name] for name in signature(wrapper.plan).parameters})
    if layout == "HND":
        cache = cache.transpose(2, 3)
    as_tuple = "kv_cache_tuple" in signature(wrapper.run).parameters
    layer = SimpleNamespace(_k_scale_float=1.0, _v_scale_float=1.0)
    query = q[:, rank * HEADS : (rank + 1) * HEADS]
    out = torch.zeros_like(query).contiguous()
    wrapper.run(layer, query, tuple(cache) if as_tuple else cache.transpose(0, 1), k, v, out=out)
    return out
