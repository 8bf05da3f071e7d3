"""A stand-in for FlashInfer's paged kernel of latent attention, as sglang plans and calls it.

It reads the lengths of the last plan, and the slots that lie in the wrapper's buffer at the call.
Source: `plan` and `run` in `mla.py`, `MLAPlan` in `scheduler.cuh` of FlashInfer 0.6.12 and 0.7.2.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from attnfix.patches.lab.emulators import attention


class _Planner:
    """What a wrapper has of its compiled module once it was planned."""

    def __init__(self, wrapper: PagedLatent):
        self.plan = _Plan(wrapper)


class _Plan:
    """Of FlashInfer up to 0.2 an operator of torch, which is called as `plan.default`."""

    def __init__(self, wrapper: PagedLatent):
        self._wrapper = wrapper
        self.default = self

    def __call__(
        self, float_: Any, int_: Any, pinned: Any, rows: torch.Tensor, pages: torch.Tensor, lengths: torch.Tensor, *shape: Any
    ) -> None:  # fmt: skip
        planned = self._wrapper
        planned.rows, planned.pages, planned.lengths = rows.tolist(), pages.tolist(), lengths.tolist()


class PagedLatent:
    """`BatchMLAPagedAttentionWrapper`, whose pages hold one token."""

    _float_workspace_buffer = _int_workspace_buffer = _pin_memory_int_workspace_buffer = None
    rows: list[int]
    pages: list[int]
    lengths: list[int]

    def __init__(
        self, *args, use_cuda_graph=False, qo_indptr=None, kv_indptr=None, kv_indices=None, kv_len_arr=None, **kwargs
    ):  # fmt: skip
        self._fixed = use_cuda_graph
        self._qo_indptr_buf, self._kv_indptr_buf, self._kv_indices_buf, self._kv_len_arr_buf = (
            qo_indptr, kv_indptr, kv_indices, kv_len_arr,
        )  # fmt: skip

    def plan(
        self, qo_indptr, kv_indptr, kv_indices, kv_len_arr, num_heads, head_dim_ckv, head_dim_kpe, page_size, causal, sm_scale,
        *dtypes, **kwargs,
    ):  # fmt: skip
        if page_size != 1:
            raise NotImplementedError("pages of several tokens")
        self._causal, self._page_size, self._sm_scale = causal, page_size, sm_scale
        self._cached_module = _Planner(self)
        self._cached_module.plan(None, None, None, qo_indptr, kv_indptr, kv_len_arr)
        if self._fixed:
            for buffer, given in (
                (self._qo_indptr_buf, qo_indptr), (self._kv_indptr_buf, kv_indptr), (self._kv_len_arr_buf, kv_len_arr),
            ):  # fmt: skip
                buffer.copy_(given)
            self._kv_indices_buf[: len(kv_indices)].copy_(kv_indices)
        else:
            self._kv_indices_buf = kv_indices

    begin_forward = plan

    def run(self, q_nope, q_pe, ckv, kpe, out=None, lse=None, return_lse=False):
        """q_nope: [rows, heads, rank]; ckv: [slots, 1, rank]. Returns `out`; with `return_lse` the LSE of base 2 beside it."""
        q, slots = torch.cat([q_nope, q_pe], -1), self._kv_indices_buf.long()
        out = torch.empty_like(q_nope) if out is None else out
        out.fill_(math.nan)
        lse = torch.full(q_nope.shape[:2], math.nan) if lse is None else lse
        for b, length in enumerate(self.lengths):
            rows, at = slice(self.rows[b], self.rows[b + 1]), slots[self.pages[b] : self.pages[b] + length]
            key, value = torch.cat([ckv[at], kpe[at]], -1).flatten(1)[:, None], ckv[at].flatten(1)[:, None]
            key, value = (one.expand(-1, q.shape[1], -1) for one in (key, value))
            result, natural = attention(q[rows], key, value, self._sm_scale, self._causal)
            out[rows], lse[rows] = result.to(out.dtype), (natural / math.log(2)).float()
        return (out, lse) if return_lse else out
