"""Proof of vllm.dcp-page-counts: decodes and prefills whose KV lies on two ranks, each rank's share found by its own plan.

Real: the builder of FlashInfer's metadata with all that it counts, the Triton kernel that copies page indices (in the
interpreter), the plan of the wrapper for several ranks, `fast_plan_decode`. FlashInfer's own wrappers hold the plan alone. The
attention of a request is computed of what the plans of all ranks name: so how the engine combines them, another bug's matter
up to 0.28.0, does not enter.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches import emulators
from attnfix.patches.scenario import NoSuchPath, Observation, combine, cumulative, device, observe, replaced
from attnfix.patches.vllm import mla_prefill

_BACKEND = "vllm.v1.attention.backends.flashinfer"
_BUFFERS = "vllm.v1.utils"
MODULES = (_BACKEND, _BUFFERS)
KERNEL = "emulated"

_HEADS, _D, _PAGE, _PAGES = 2, 64, 4, 24  # tokens per page, pages per request and rank
_modules: dict[str, Any] = {}
_planned: dict[type, list[Any]] = {}  # kind of wrapper -> its last plan: indptr, indices, last_page_len


class _Batch(NamedTuple):
    """Tokens of each request: those in the cache before this step, and new ones. Decodes have one, and come first."""

    context: tuple[int, ...]
    new: tuple[int, ...]


_DECODES = _Batch((36, 1, 16, 0), (1, 1, 1, 1))  # a request of a single token lies on the first rank alone
_MIXED = _Batch((22, 37, 1, 33, 48), (1, 5, 2, 16, 3))
_FRESH = _Batch((0, 0, 40), (7, 21, 4))


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


def prepare(modules: dict[str, Any]) -> None:
    _modules.update(modules)
    backend: Any = modules[_BACKEND]
    if not hasattr(backend, "BatchDCPPrefillWrapper"):
        raise NoSuchPath("FlashInfer's backend knows no decode context parallelism")
    backend.BatchPrefillWithPagedKVCacheWrapper, backend.BatchDecodeWithPagedKVCacheWrapper = _Held, _Decode
    backend.BatchPrefillWithRaggedKVCacheWrapper = _NewTokens
    backend.get_seq_lens, backend.pin_host_range_buf = _seq_lens, lambda size: None  # asked for from 0.30
    backend.get_kv_cache_layout = lambda: "NHD"
    backend.get_flashinfer_layout_string = lambda layout: "NHD"  # the same, from 0.33


def scenario(seed: int) -> Observation:
    return combine(*(_run(seed, batch, 2, 1) for batch in (_DECODES, _MIXED, _FRESH)), _run(seed, _MIXED, 3, 2))


def control(seed: int) -> Observation:
    """One rank, which holds every request's KV."""
    return combine(*(_run(seed, batch, 1, 1) for batch in (_DECODES, _MIXED, _FRESH)))


def _run(seed: int, batch: _Batch, ranks: int, interleave: int) -> Observation:
    import torch

    draw = torch.Generator().manual_seed(seed)
    totals = [n + m for n, m in zip(*batch)]
    q = torch.randn(sum(batch.new), _HEADS, _D, generator=draw)
    kv = torch.randn(2, len(totals), max(totals), _HEADS, _D, generator=draw)
    found = [[kv[:, b, :0]] for b in range(len(totals))]
    for rank in range(ranks):
        # What belongs to none of the requests: plausible, and drawn with the rest
        cache = torch.rand(2, len(totals), _PAGES * _PAGE, _HEADS, _D, generator=draw) * 20
        for keys, more in zip(found, _read(cache, kv, batch, totals, rank, ranks, interleave)):
            keys.append(more)
    outs, reference, at = [], [], cumulative(batch.new).tolist()
    for b, n in enumerate(batch.context):
        if ranks > 1 and b >= _decodes(batch):  # the plan of several ranks is for the context alone
            found[b].append(kv[:, b, n : totals[b]])
        outs.append(_attend(q[at[b] : at[b + 1]], torch.cat(found[b], 1)))
        reference.append(_attend(q[at[b] : at[b + 1]], kv[:, b, : totals[b]]))
    return observe(torch.cat(outs).float(), torch.cat(reference))


def _attend(q: Any, kv: Any) -> Any:
    """The last tokens of a request attend to keys and values [2, tokens, heads, d]; float64."""
    return emulators.attention(q, kv[0], kv[1], _D**-0.5, True)[0]


def _decodes(batch: _Batch) -> int:
    return next((b for b, new in enumerate(batch.new) if new > 1), len(batch.new))


def _read(cache: Any, kv: Any, batch: _Batch, totals: list[int], rank: int, ranks: int, interleave: int) -> list[Any]:
    """Of each request what the kernels read on this rank, [2, tokens, heads, d], after the engine has planned."""
    for b, total in enumerate(totals):  # the new tokens are written before attention
        mine = [token for token in range(total) if token // interleave % ranks == rank]
        cache[:, b, : len(mine)] = kv[:, b, mine]
    cache = cache.view(2, -1, _PAGE, *kv.shape[3:])
    _planned.clear()
    with mla_prefill.unpinned():
        _builder(rank, ranks, interleave).build(0, _common(batch, totals))
    read = []
    for kind in (_Decode, _Held):
        if kind in _planned:
            indptr, indices, last = _planned[kind]
            for start, stop, tokens in zip(indptr, indptr[1:], _seq_lens(indptr, last, _PAGE)):
                read.append(cache[:, indices[start:stop].long().cpu()].flatten(1, 2)[:, :tokens])
    return read


def _seq_lens(indptr: Any, last_page_len: Any, page_size: int) -> Any:
    """FlashInfer's `get_seq_lens`, as its kernels reckon, too."""
    return (indptr.diff() - 1).clamp(min=0) * page_size + last_page_len


def _builder(rank: int, ranks: int, interleave: int) -> Any:
    import torch

    cls, dtype, requests = _modules[_BACKEND].FlashInferMetadataBuilder, torch.float32, 8
    builder = object.__new__(cls)
    builder.__dict__.update(
        device=torch.device(device()), reorder_batch_threshold=1, page_size=_PAGE, num_qo_heads=_HEADS, num_kv_heads=_HEADS,
        head_dim=_D, sm_scale=_D**-0.5, window_left=-1, logits_soft_cap=None, has_sinks=False, cache_dtype="auto",
        kv_cache_dtype=dtype, q_data_type=dtype, q_data_type_prefill=dtype, q_data_type_decode=dtype, is_kvcache_nvfp4=False,
        nvfp4_trtllm=False, nvfp4_fa2=False,
        use_dcp=ranks > 1, dcp_world_size=ranks, dcp_rank=rank, dcp_kv_cache_interleave_size=interleave, dcp_a2a=False,
        model_config=SimpleNamespace(dtype=dtype), attention_config=SimpleNamespace(use_trtllm_attention=False),
        cache_config=SimpleNamespace(get_resolved_kv_cache_layout=lambda: None),
        vllm_config=SimpleNamespace(attention_config=SimpleNamespace(use_trtllm_attention=False)),
        global_hyperparameters=SimpleNamespace(has_same_window_lefts=True, has_same_all_params=True),
        use_trtllm_decode_attention=False, use_dedicated_xqa=False, use_xqa=False, use_trtllm_dcp_prefill=False,
        use_trtllm_gen_varlen_decode=False, use_fa2_native_decode=False, enable_cuda_graph=False, pin_memory=False,
        _num_speculative_tokens=0, _kv_transfer_enabled=False,
        _workspace_buffer=torch.zeros(1), _prefill_wrapper=None, _noncausal_prefill_wrapper=None, _decode_wrapper=None,
        prefill_fixed_split_size=-1, decode_fixed_split_size=-1, disable_split_kv=False,
    )  # fmt: skip
    builder.__dict__.update(_buffers(cls, requests))
    return builder


def _buffers(cls: Any, requests: int) -> dict[str, Any]:
    """What the builder writes its counts to: up to 0.13 tensors here and there, later pairs of them."""
    import torch

    make = partial(torch.zeros, dtype=torch.int32)
    if not hasattr(cls, "_compute_flashinfer_kv_metadata"):
        found: dict[str, Any] = {}
        for name, size in (("indptr", requests + 1), ("indices", requests * _PAGES), ("last_page_len", requests)):
            here = make(size)
            found |= {f"paged_kv_{name}": make(size, device=device()), f"paged_kv_{name}_cpu": here,
                      f"paged_kv_{name}_np": here.numpy(), f"paged_kv_{name}_buffer": make(size)}  # fmt: skip
        return found
    pair = partial(_modules[_BUFFERS].CpuGpuBuffer, dtype=torch.int32, device=torch.device(device()), pin_memory=False)
    indptr, indices = pair(requests + 1), pair(requests * _PAGES)
    return {
        "paged_kv_indptr": indptr,
        "paged_kv_indptr_cpu_buffer": indptr.cpu.clone(),
        # Where the builder makes no pairs itself, a tensor on the GPU
        "paged_kv_indices": indices if hasattr(cls, "_make_buffer") else indices.gpu,
        "paged_kv_last_page_len": pair(requests),
    }


def _common(batch: _Batch, totals: list[int]) -> Any:
    import torch

    starts, lens = cumulative(batch.new), torch.tensor(totals, dtype=torch.int32)
    common = object.__new__(_modules[_BACKEND].CommonAttentionMetadata)
    common.__dict__.update(
        num_reqs=len(totals), num_actual_tokens=sum(batch.new), max_query_len=max(batch.new), max_seq_len=max(totals),
        query_start_loc=starts.to(device()), query_start_loc_cpu=starts, slot_mapping=None, causal=True,
        block_table_tensor=torch.arange(len(totals) * _PAGES, dtype=torch.int32, device=device()).view(len(totals), _PAGES),
        seq_lens=lens.clone().to(device()), seq_lens_cpu=lens, _seq_lens_cpu=lens, seq_lens_cpu_upper_bound=lens,
    )  # fmt: skip
    return common


def sabotages() -> dict[str, Any]:
    from . import wrap

    real = wrap.local_lens

    def of_first_rank(lens: Any, builder: Any) -> Any:
        return real(lens, SimpleNamespace(**{**vars(builder), "dcp_rank": 0}))

    def equal_shares(lens: Any, builder: Any) -> Any:
        return lens // builder.dcp_world_size

    return {
        "the correction does nothing": replaced(wrap, "local_lens", lambda lens, builder: lens),
        "every rank has what the first has": replaced(wrap, "local_lens", of_first_rank),
        "the odd token is lost": replaced(wrap, "local_lens", equal_shares),
    }
