"""Stand-ins for FlashInfer's wrappers, as vLLM plans and runs them.

Lengths are those of the plan, which reads them on the host; page numbers are not copied: a run reads what lies in the tensor of
the plan then. A decode wrapper for a CUDA graph copies lengths and page numbers into the buffers that it was made with, and a
replay reads those. A run does not look at the plan of another wrapper. LSEs have base 2, [rows, heads].

Keys before a window: vLLM decodes on tensor cores, which is a prefill of few rows. FlashInfer's FA2 begins with the first key
that the first row sees, so that what lies before is not read; its FA3 begins with a whole tile.
Source: `plan` and `run` of `prefill.py` and `decode.py`, `fast_decode_plan`, of FlashInfer 0.6.12 and 0.7.2; for keys before a
window `prefill.cuh` and `hopper/mainloop.cuh` of 0.6.18. Up to 0.3, which vLLM has up to 0.11.0, FA2 read all keys.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import torch

from .kernels import FP8, attend, unread

_BACKEND = "vllm.v1.attention.backends.flashinfer"


class _Wrapper:
    _decodes = False

    def __init__(self, workspace: Any = None, kv_layout: str = "NHD", *, backend: str = "auto", **more: Any):
        self._kv_layout, self._asked = kv_layout, backend

    def _keep(self, causal: bool, sm_scale: float, window_left: int, logits_soft_cap: Any) -> None:
        """What vLLM looks at before it runs a wrapper."""
        self._causal, self._sm_scale, self._window_left = causal, sm_scale, window_left
        self._logits_soft_cap = logits_soft_cap or 0.0

    def _planned(self, q_data_type: Any = None, kv_data_type: Any = None, **more: Any) -> None:
        """Dtypes of the plan; keys have that of queries where it names none."""
        self._dtypes = q_data_type, kv_data_type or q_data_type

    def _writes(self, q_data_type: Any = None, o_data_type: Any = None, **more: Any) -> None:
        """Output has the dtype of queries where the plan names none, and no kernel of Hopper writes FP8."""
        if (o_data_type or q_data_type) == FP8:
            raise AssertionError("FP8 output is not supported in fa2/fa3 backends yet")

    def _checked(self, q: Any, keys: Any) -> None:
        """A run's dtypes are those of its plan."""
        for name, x, planned in zip("qk", (q, keys), self._dtypes):
            if isinstance(planned, torch.dtype) and x.dtype != planned:
                raise ValueError(f"The dtype of {name} {x.dtype} does not match {planned}, specified in plan function.")

    def _rows(self, q: Any, k: Any, v: Any, scale: float, v_scale: float, sinks: Any = None) -> tuple[Any, Any]:
        """Of one request, whose rows are its last."""
        first = len(k) - len(q) if self._causal or self._window_left >= 0 else 0
        window = (self._window_left, 0 if self._causal else -1)
        before = self._unread(q, first)
        k, v, first = k[before:], v[before:], first - before
        out, lse = attend(q, k, v, first, scale, self._causal, window, self._logits_soft_cap, sinks)
        return out * v_scale, lse / math.log(2)

    def _unread(self, q: Any, first: int) -> int:
        """Keys that are not read, of a request whose first row is at position `first`."""
        left = self._window_left
        return unread(first, (left, 0)) if left < 0 or self._fa3(q) else max(first - left, 0)

    def _fa3(self, q: Any) -> bool:
        """Whether that is what "auto" chose: on Hopper, unless FP8 keys have other queries, and for decodes if both are FP8."""
        capability = import_module("vllm.platforms").current_platform.get_device_capability()
        if self._asked != "auto" or capability is None or tuple(capability) != (9, 0):
            return False
        return q.dtype == FP8 or not (self._decodes or self._dtypes[1] in (FP8, torch.uint8))

    def _pages(self, kv_cache: Any, indices: Any, tokens: int) -> list[Any]:
        both = kv_cache if isinstance(kv_cache, tuple | list) else kv_cache.unbind(1)
        both = [x.transpose(1, 2) if self._kv_layout == "HND" else x for x in both]
        return [x[indices.long()].flatten(0, 1)[:tokens].double() for x in both]

    @staticmethod
    def _given(out: Any, outs: list[Any], lses: list[Any], like: Any, return_lse: bool) -> Any:
        result = torch.cat(outs)
        if out is None:
            out = result.to(torch.bfloat16 if like.element_size() == 1 else like.dtype)
        else:
            out[: len(result)] = result.to(out.dtype)  # rows that belong to no request stay as they are
        return (out, torch.cat(lses).float()) if return_lse else out


def _lengths(indptr: list[int], last: list[int], page: int) -> list[int]:
    return [max(b - a - 1, 0) * page + (n if b > a else 0) for a, b, n in zip(indptr, indptr[1:], last)]


class PagedPrefill(_Wrapper):
    """`BatchPrefillWithPagedKVCacheWrapper`."""

    def plan(
        self, qo_indptr: Any, paged_kv_indptr: Any, paged_kv_indices: Any, paged_kv_last_page_len: Any, num_qo_heads: int,
        num_kv_heads: int, head_dim_qk: int, page_size: int, *, causal: bool = False, sm_scale: Any = None,
        window_left: int = -1, logits_soft_cap: Any = None, **more: Any,
    ) -> None:  # fmt: skip
        self._keep(causal, sm_scale, window_left, logits_soft_cap)
        self._planned(**more)
        self._writes(**more)
        self._qo, self._kv, self._indices = qo_indptr.tolist(), paged_kv_indptr.tolist(), paged_kv_indices
        self._paged_kv_indices_buf = paged_kv_indices  # what a correction looks at
        self._lens = _lengths(self._kv, paged_kv_last_page_len.tolist(), page_size)

    def run(
        self, q: Any, kv_cache: Any, *, q_scale: Any = None, k_scale: Any = None, v_scale: Any = None, out: Any = None,
        return_lse: bool = False, sinks: Any = None, **more: Any,
    ) -> Any:  # fmt: skip
        scale = self._sm_scale * (q_scale or 1.0) * (k_scale or 1.0)
        return self._run(q, kv_cache, scale, v_scale or 1.0, out, return_lse, sinks)

    def _run(self, q: Any, kv_cache: Any, scale: float, v_scale: float, out: Any, return_lse: bool, sinks: Any) -> Any:
        if len(q) != self._qo[-1]:
            raise ValueError("q.shape[0] does not match qo_indptr[-1]")
        self._checked(q, kv_cache[0])
        outs, lses = [], []
        for b, tokens in enumerate(self._lens):
            k, v = self._pages(kv_cache, self._indices[self._kv[b] : self._kv[b + 1]], tokens)
            result, lse = self._rows(q[self._qo[b] : self._qo[b + 1]], k, v, scale, v_scale, sinks)
            outs.append(result)
            lses.append(lse)
        return self._given(out, outs, lses, q, return_lse)


class SinkPrefill(PagedPrefill):
    """`BatchAttentionWithAttentionSinkWrapper`."""

    def run(self, q: Any, kv_cache: Any, sinks: Any, scale: float, *, v_scale: Any = None, out: Any = None, **more: Any) -> Any:
        return self._run(q, kv_cache, scale, v_scale or 1.0, out, False, sinks)


class Ragged(_Wrapper):
    """`BatchPrefillWithRaggedKVCacheWrapper`."""

    def plan(
        self, qo_indptr: Any, kv_indptr: Any, *shape: Any, causal: bool = False, sm_scale: Any = None, window_left: int = -1,
        logits_soft_cap: Any = None, **more: Any,
    ) -> None:  # fmt: skip
        self._keep(causal, sm_scale, window_left, logits_soft_cap)
        self._planned(**more)
        self._writes(**more)
        self._qo, self._kv = qo_indptr.tolist(), kv_indptr.tolist()

    def run(self, q: Any, k: Any, v: Any, *, out: Any = None, return_lse: bool = False, **more: Any) -> Any:
        self._checked(q, k)
        outs, lses = [], []
        for b in range(len(self._qo) - 1):
            keys = slice(self._kv[b], self._kv[b + 1])
            result, lse = self._rows(q[self._qo[b] : self._qo[b + 1]], k[keys], v[keys], self._sm_scale, 1.0)
            outs.append(result)
            lses.append(lse)
        return self._given(out, outs, lses, q, return_lse)


class _Module:
    """Of compiled kernels: how it plans is not looked at."""

    def plan(self, *args: Any) -> None: ...


class PagedDecode(_Wrapper):
    """`BatchDecodeWithPagedKVCacheWrapper`."""

    _decodes = True

    def __init__(
        self, workspace: Any = None, kv_layout: str = "NHD", *, use_cuda_graph: bool = False, backend: str = "auto",
        paged_kv_indptr_buffer: Any = None, paged_kv_indices_buffer: Any = None, paged_kv_last_page_len_buffer: Any = None,
        **more: Any,
    ):  # fmt: skip
        super().__init__(workspace, kv_layout, backend=backend)
        self.is_cuda_graph_enabled = use_cuda_graph
        self._indptr, self._indices, self._last = (
            paged_kv_indptr_buffer, paged_kv_indices_buffer, paged_kv_last_page_len_buffer,
        )  # fmt: skip
        # Up to 0.16 vLLM has a fast plan of its own, which reaches into the wrapper
        self._paged_kv_indptr_buf, self._paged_kv_indices_buf = self._indptr, self._indices
        self._paged_kv_last_page_len_buf = self._last
        self._fixed_batch_size = len(self._last) if use_cuda_graph else 0
        self._cached_module, self._backend = _Module(), "fa2"
        self._float_workspace_buffer = self._int_workspace_buffer = self._pin_memory_int_workspace_buffer = None

    def plan(
        self, indptr: Any, indices: Any, last_page_len: Any, num_qo_heads: int, num_kv_heads: int, head_dim: int,
        page_size: int, *options: Any, sm_scale: Any = None, window_left: int = -1, logits_soft_cap: Any = None,
        q_len_per_req: int = 1, **more: Any,
    ) -> None:  # fmt: skip
        if options:  # up to 0.16 by position: of positions, window, soft cap, dtypes, scale
            window_left, logits_soft_cap = options[1:3]
            sm_scale = next(option for option in options[3:] if isinstance(option, float))
        if self.is_cuda_graph_enabled:
            if len(indices) > len(self._indices):
                raise ValueError("The size of indices should be less than or equal to the allocated buffer")
            if indices.data_ptr() != self._indices.data_ptr():
                self._indices[: len(indices)] = indices
            self._indptr.copy_(indptr)
            self._last.copy_(last_page_len)
        else:
            self._indices, self._indptr, self._last = indices, indptr.clone(), last_page_len.clone()
        fast_decode_plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
                         sm_scale=sm_scale, window_left=window_left, logits_soft_cap=logits_soft_cap,
                         q_len_per_req=q_len_per_req, **more)  # fmt: skip

    def run(
        self, q: Any, kv_cache: Any, *, q_scale: Any = None, k_scale: Any = None, v_scale: Any = None, out: Any = None,
        lse: Any = None, return_lse: bool = False, sinks: Any = None, **more: Any,
    ) -> Any:  # fmt: skip
        self._checked(q, kv_cache[0])
        at, last = self._indptr.tolist(), self._last.tolist()
        if len(q) != (len(at) - 1) * self._each:
            raise ValueError("the batch of the query is not that of the plan")
        scale = self._sm_scale * (q_scale or 1.0) * (k_scale or 1.0)
        outs, lses = [], []
        for b, tokens in enumerate(_lengths(at, last, self._page)):
            k, v = self._pages(kv_cache, self._indices[at[b] : at[b + 1]], tokens)
            result, one = self._rows(q[b * self._each : (b + 1) * self._each], k, v, scale, v_scale or 1.0, sinks)
            outs.append(result)
            lses.append(one)
        result = self._given(out, outs, lses, q, return_lse)
        if lse is not None and return_lse:
            lse[: len(result[1])] = result[1]
        return result


def fast_decode_plan(
    wrapper: Any, indptr: Any, indices: Any, last_page_len: Any, num_qo_heads: int, num_kv_heads: int, head_dim: int,
    page_size: int, *args: Any, sm_scale: Any = None, window_left: int = -1, logits_soft_cap: Any = None,
    q_len_per_req: int = 1, **more: Any,
) -> None:  # fmt: skip
    """Of a CUDA graph's wrapper: it copies nothing, as the engine has put lengths and page numbers into the buffers."""
    wrapper._keep(True, sm_scale, window_left, logits_soft_cap)
    wrapper._planned(**more)
    wrapper._page, wrapper._each = page_size, q_len_per_req


def _get_seq_lens(indptr: Any, last_page_len: Any, page_size: int) -> Any:
    counts = indptr.diff()
    return torch.where(counts > 0, (counts - 1) * page_size + last_page_len, 0)


def stand_in() -> None:
    backend: Any = import_module(_BACKEND)
    for name, stand in {
        "BatchPrefillWithPagedKVCacheWrapper": PagedPrefill,
        "BatchAttentionWithAttentionSinkWrapper": SinkPrefill,
        "BatchPrefillWithRaggedKVCacheWrapper": Ragged,
        "BatchDecodeWithPagedKVCacheWrapper": PagedDecode,
        "fast_decode_plan": fast_decode_plan,
        "get_seq_lens": _get_seq_lens,
        "_get_range_buf": lambda size, device: torch.arange(size, dtype=torch.int32),
        "pin_host_range_buf": lambda *args: None,
    }.items():
        if hasattr(backend, name):
            setattr(backend, name, stand)
