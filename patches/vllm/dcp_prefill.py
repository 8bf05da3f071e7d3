"""FlashInfer's prefill under decode context parallelism through real vLLM code on the CPU, on two ranks.

Real: `BatchDCPPrefillWrapper` with its plan, the combine over the ranks (its Triton kernel in the interpreter), the merge's
Python entry. Emulated: FlashInfer's ragged and paged wrapper, the CUDA merge (put in place by `mla_prefill`), and the
collectives: each rank is a thread.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from types import SimpleNamespace
from typing import Any

from attnfix.patches import emulators
from attnfix.patches.scenario import cumulative

BACKEND = "vllm.v1.attention.backends.flashinfer"

RANKS, HEADS, D, PAGE, PAGES = 2, 2, 64, 4, 16  # query heads of each rank; tokens per page, pages per request and rank
_modules: dict[str, Any] = {}
_launch = threading.Lock()  # Triton's interpreter is not made for threads


def prepare(modules: dict[str, Any]) -> bool:
    """Put the stand-ins in place. Whether the release has this path."""
    _modules.update(modules)
    backend: Any = _modules.get(BACKEND)
    if not hasattr(backend, "BatchDCPPrefillWrapper"):
        return False
    combine: Any = sys.modules[backend.cp_lse_ag_out_rs.__module__]
    real = combine.CPTritonContext.call_kernel

    def call_kernel(*args: Any, **kwargs: Any) -> Any:
        with _launch:
            return real(*args, **kwargs)

    combine.CPTritonContext.call_kernel = call_kernel
    if launcher := getattr(combine, "_CORRECT_ATTN_CP_OUT_KERNEL", None):  # from 0.30; it asks what the interpreter's lacks
        parameters = signature(launcher.kernel.fn).parameters.values()
        launcher.kernel.constexprs = [at for at, one in enumerate(parameters) if "constexpr" in str(one.annotation)]
    return True


def use(lse_base: float) -> None:
    """Put new stand-ins for FlashInfer's wrappers in place, whose LSE has that base."""
    backend = _modules[BACKEND]
    backend.BatchPrefillWithRaggedKVCacheWrapper = lambda *args, **kwargs: emulators.RaggedWrapper(lse_base)
    backend.BatchPrefillWithPagedKVCacheWrapper = lambda workspace, layout: emulators.PagedWrapper(lse_base, layout)


def outputs(seed: int, context: tuple[int, ...], new: tuple[int, ...], layout: str, dtype: str) -> tuple[Any, Any]:
    """(out, float64 reference) of the new tokens, [tokens, heads of all ranks, d].

    context, new: tokens of each request; token i of a context lies on rank i % 2. layout: of the cache, NHD or HND.
    """
    import torch

    draw = torch.Generator().manual_seed(seed)
    tensor = lambda *shape: torch.randn(*shape, generator=draw).to(getattr(torch, dtype))  # noqa: E731
    q, k, v = tensor(sum(new), RANKS * HEADS, D), tensor(sum(new), 1, D), tensor(sum(new), 1, D)
    cached = tensor(2, len(context), max(context), 1, D)
    group, backend = _Group(), _modules[BACKEND]
    backend.get_dcp_group = lambda: group
    backend.get_kv_cache_layout = lambda: layout
    with ThreadPoolExecutor(RANKS) as threads:
        outs = list(threads.map(lambda rank: group.on(rank, _run, q, k, v, cached, context, new, layout), range(RANKS)))

    at, reference = cumulative(new).tolist(), []
    for b, n in enumerate(context):
        rows = slice(at[b], at[b + 1])
        all_k, all_v = (torch.cat([part[b, :n], x[rows]]).expand(-1, RANKS * HEADS, -1) for part, x in zip(cached, (k, v)))
        reference.append(emulators.attention(q[rows], all_k, all_v, D**-0.5, causal=True)[0])
    return torch.cat(outs, 1), torch.cat(reference)


def _run(rank: int, q: Any, k: Any, v: Any, cached: Any, context: tuple, new: tuple, layout: str) -> Any:
    """One rank: its wrapper planned and run, as the metadata builder and the layer do."""
    import torch

    local = [len(range(rank, n, RANKS)) for n in context]
    cache = torch.zeros(2, len(context) * PAGES, PAGE, 1, D, dtype=q.dtype)
    for b, n in enumerate(local):
        cache.view(2, len(context), PAGES * PAGE, 1, D)[:, b, :n] = cached[:, b, rank : context[b] : RANKS]
    pages = [-(-n // PAGE) for n in local]
    cls = _modules[BACKEND].BatchDCPPrefillWrapper
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


class _Group:
    """The group of ranks, each of which is a thread that says which one it is."""

    world_size = RANKS

    def __init__(self) -> None:
        self._here = threading.local()
        self._shared: list[Any] = [None] * RANKS
        self._all = threading.Barrier(RANKS, timeout=60)

    def on(self, rank: int, step: Any, *args: Any) -> Any:
        self._here.rank = rank
        try:
            return step(rank, *args)
        except Exception:
            self._all.abort()
            raise

    @property
    def rank_in_group(self) -> int:
        return self._here.rank

    def all_gather(self, local: Any, dim: int) -> Any:
        import torch

        return torch.cat(self._exchange(local), dim)

    def reduce_scatter(self, local: Any, dim: int) -> Any:
        return sum(self._exchange(local)).chunk(RANKS, dim)[self.rank_in_group].contiguous()

    def _exchange(self, local: Any) -> list:
        self._shared[self.rank_in_group] = local
        self._all.wait()
        everyone = [x.clone() for x in self._shared]
        self._all.wait()
        return everyone
