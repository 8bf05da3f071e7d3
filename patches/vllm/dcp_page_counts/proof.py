"""Proof of vllm.dcp-page-counts: decodes and prefills whose KV lies on several ranks, each rank's share found by its own plan.

Real: configs and the builder of FlashInfer's metadata, by their own constructors, with all that it counts, the Triton kernel
that copies page indices (in the interpreter), the plan of the wrapper for several ranks, `fast_plan_decode`. FlashInfer's own
wrappers hold the plan alone. The attention of a request is computed of what the plans of all ranks name: so how the engine
combines them, another bug's matter up to 0.28.0, does not enter.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, combine, cumulative, observe, replaced
from attnfix.patches.lab.vllm.construction import DENSE, Worker

_BACKEND = "vllm.v1.attention.backends.flashinfer"

_TP, _HEADS, _D, _PAGE, _PAGES = 6, 2, 64, 8, 24  # query heads of each rank; tokens per page, pages per request and rank
_MODEL = {**DENSE, "hidden_size": _TP * _HEADS * _D, "num_attention_heads": _TP * _HEADS, "head_dim": _D}
_planned: dict[type, list[Any]] = {}  # kind of wrapper -> its last plan: indptr, indices, last_page_len


class Batch(NamedTuple):
    """Tokens of each request: those in the cache before this step, and new ones. Decodes have one, and come first."""

    context: tuple[int, ...]
    new: tuple[int, ...]


class Layout(NamedTuple):
    """Token t of a request lies on rank t // interleave % ranks; `twice`: after another group's builder."""

    ranks: int
    interleave: int = 1
    twice: bool = False


_DECODES = Batch((36, 1, 16, 0), (1, 1, 1, 1))  # a request of a single token lies on the first rank alone
_MIXED = Batch((21, 38, 1, 34, 48), (1, 5, 2, 16, 3))
_FRESH = Batch((0, 0, 40), (7, 21, 4))
_LONG = Batch((21, 38, 20, 34, 48), (1, 5, 2, 16, 3))  # less its new tokens twice, no context is below 0: that ends a process


class _Held:
    """One of FlashInfer's wrappers without CUDA graphs, as far as its plan goes."""

    is_cuda_graph_enabled = False
    names: tuple[str, ...] = ("qo_indptr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len")

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def plan(self, *args: Any, **kwargs: Any) -> None:
        plan: dict[str, Any] = dict(zip(self.names, args), **kwargs)
        prefix = "paged_kv_" if "paged_kv_indptr" in plan else ""
        parts = (plan[prefix + part] for part in ("indptr", "indices", "last_page_len"))
        _planned[type(self)] = [part.clone() for part in parts]  # the builder uses its buffers again


class _Decode(_Held):
    names = ("indptr", "indices", "last_page_len")


class _NewTokens:
    """The wrapper for new tokens, which knows no pages."""

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def plan(self, *args: Any, **kwargs: Any) -> None:
        pass


def run(seed: int, batch: Batch, layout: Layout) -> Observation:
    import torch

    draw = torch.Generator().manual_seed(seed)
    totals = [n + m for n, m in zip(*batch)]
    q = torch.randn(sum(batch.new), _HEADS, _D, generator=draw)
    kv = torch.randn(2, len(totals), max(totals), _HEADS, _D, generator=draw)
    found = [[kv[:, b, :0]] for b in range(len(totals))]
    for rank in range(layout.ranks):
        # What belongs to none of the requests: plausible, and drawn with the rest
        cache = torch.rand(2, len(totals), _PAGES * _PAGE, _HEADS, _D, generator=draw) * 20
        for keys, more in zip(found, _read(cache, kv, batch, totals, rank, layout)):
            keys.append(more)
    outs, reference, at = [], [], cumulative(batch.new).tolist()
    for b, n in enumerate(batch.context):
        if layout.ranks > 1 and b >= _decodes(batch):  # the plan of several ranks is for the context alone
            found[b].append(kv[:, b, n : totals[b]])
        outs.append(_attend(q[at[b] : at[b + 1]], torch.cat(found[b], 1)))
        reference.append(_attend(q[at[b] : at[b + 1]], kv[:, b, : totals[b]]))
    return observe(torch.cat(outs).float(), torch.cat(reference))


def _attend(q: Any, kv: Any) -> Any:
    """The last tokens of a request attend to keys and values [2, tokens, heads, d]; float64."""
    return emulators.attention(q, kv[0], kv[1], _D**-0.5, True)[0]


def _decodes(batch: Batch) -> int:
    return next((b for b, new in enumerate(batch.new) if new > 1), len(batch.new))


def _read(cache: Any, kv: Any, batch: Batch, totals: list[int], rank: int, layout: Layout) -> list[Any]:
    """Of each request what the kernels read on this rank, [2, tokens, heads, d], after the engine has planned."""
    worker, builders = rank_of(rank, layout.ranks, layout.interleave)
    for b, total in enumerate(totals):  # the new tokens are written before attention
        mine = [token for token in range(total) if worker.holds(token)]
        cache[:, b, : len(mine)] = kv[:, b, mine]
    cache = cache.view(2, -1, _PAGE, *kv.shape[3:])
    with worker:
        common = worker.batch(*batch, pages=_PAGES)
        for builder in builders[: 1 + layout.twice]:
            _planned.clear()
            builder.build(0, common)
    read = []
    for kind in (_Decode, _Held):
        if kind in _planned:
            indptr, indices, last = _planned[kind]
            for start, stop, tokens in zip(indptr, indptr[1:], _seq_lens(indptr, last, _PAGE)):
                read.append(cache[:, indices[start:stop].long().cpu()].flatten(1, 2)[:, :tokens])
    return read


@cache
def rank_of(rank: int, ranks: int, interleave: int) -> tuple[Worker, list[Any]]:
    """A rank, and the builders of two groups of layers, which share the metadata of every step."""
    worker = Worker(
        _MODEL, backend="flashinfer.FlashInferBackend", dtype="float32", rank=rank, tp=_TP, dcp=ranks, interleave=interleave,
        page_size=_PAGE,
    )  # fmt: skip
    with worker:
        return worker, [worker.builder([worker.layer(index)]) for index in (0, 1)]


def _seq_lens(indptr: Any, last_page_len: Any, page_size: int) -> Any:
    """FlashInfer's `get_seq_lens`, as its kernels reckon, too."""
    return (indptr.diff() - 1).clamp(min=0) * page_size + last_page_len


class Proof(proof.Proof):
    modules = (_BACKEND,)

    def prepare(self) -> None:
        backend: Any = self.engine[_BACKEND]
        if not hasattr(backend, "BatchDCPPrefillWrapper"):
            raise NoSuchPath("FlashInfer's backend knows no decode context parallelism")
        backend.BatchPrefillWithPagedKVCacheWrapper, backend.BatchDecodeWithPagedKVCacheWrapper = _Held, _Decode
        backend.BatchPrefillWithRaggedKVCacheWrapper = _NewTokens
        backend.get_seq_lens, backend.pin_host_range_buf = _seq_lens, lambda size: None  # asked for from 0.30

    def scenario(self, seed: int) -> Observation:
        plain = (run(seed, batch, Layout(2)) for batch in (_DECODES, _MIXED, _FRESH))
        interleaved = (run(seed, _MIXED, layout) for layout in (Layout(3, interleave=2), Layout(2, interleave=_PAGE)))
        return combine(*plain, *interleaved, run(seed, _LONG, Layout(2, twice=True)))

    def control(self, seed: int) -> Observation:
        """One rank, which holds every request's KV."""
        layouts = Layout(1), Layout(1, twice=True)
        return combine(*(run(seed, batch, layout) for batch in (_DECODES, _MIXED, _FRESH) for layout in layouts))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.local_lens

        def of_first_rank(lens: Any, builder: Any) -> Any:
            return real(lens, SimpleNamespace(**{**vars(builder), "dcp_rank": 0}))

        def equal_shares(lens: Any, builder: Any) -> Any:
            return lens // builder.dcp_world_size

        builder = self.engine[_BACKEND].FlashInferMetadataBuilder
        broken = {}
        if hasattr(builder, "_compute_flashinfer_kv_metadata"):  # from 0.14.0
            broken = {
                "the correction does nothing": replaced(wrap, "local_lens", lambda lens, builder: lens),
                "every rank has what the first has": replaced(wrap, "local_lens", of_first_rank),
                "the odd token is lost": replaced(wrap, "local_lens", equal_shares),
            }
        if hasattr(rank_of(0, 2, 1)[0].config.parallel_config, "cp_kv_cache_interleave_size"):  # from 0.12.0
            former = replaced(wrap, "interleave", lambda builder: builder.dcp_kv_cache_interleave_size)
            broken["the interleave size is read by its former name"] = former
        if "seq_lens_cpu" in code_of(builder.build).co_names:  # not in 0.14.0-0.15.1
            broken["the engine subtracts in place"] = replaced(wrap, "with_own_lens", lambda common: common)
        return broken
