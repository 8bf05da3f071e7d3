"""Stand-ins for the kernels of latent attention, FlashInfer's and FlashMLA's, at the names that backends call.

FlashInfer's paged kernel reads the lengths of the last plan, and the slots that lie in the wrapper's buffer at the call.
Source: `plan` and `run` in `mla.py`, `MLAPlan` in `scheduler.cuh` of FlashInfer 0.6.12 and 0.7.2.
FlashMLA's are `emulators`'.
"""

from __future__ import annotations

import math
import sys
import types
from typing import Any

from attnfix.patches.proofkit import emulators
from attnfix.patches.proofkit.emulators import flashinfer, flashmla
from attnfix.patches.proofkit.sglang.engine import module

from . import device

_ATTENTION = "layers.attention."


class _Planner:
    """What a wrapper has of its compiled module once it was planned."""

    def __init__(self, wrapper: PagedLatent):
        self._wrapper = wrapper

    def plan(self, float_: Any, int_: Any, pinned: Any, rows: Any, pages: Any, lengths: Any, *shape: Any) -> None:
        self._wrapper.rows, self._wrapper.pages, self._wrapper.lengths = rows.tolist(), pages.tolist(), lengths.tolist()


class PagedLatent:
    """`BatchMLAPagedAttentionWrapper`, whose pages hold one token."""

    _float_workspace_buffer = _int_workspace_buffer = _pin_memory_int_workspace_buffer = None

    def __init__(
        self, *args: Any, use_cuda_graph: bool = False, qo_indptr: Any = None, kv_indptr: Any = None, kv_indices: Any = None,
        kv_len_arr: Any = None, **kwargs: Any,
    ):  # fmt: skip
        self._fixed = use_cuda_graph
        self._qo_indptr_buf, self._kv_indptr_buf, self._kv_indices_buf, self._kv_len_arr_buf = (
            qo_indptr, kv_indptr, kv_indices, kv_len_arr,
        )  # fmt: skip

    def plan(
        self, qo_indptr: Any, kv_indptr: Any, kv_indices: Any, kv_len_arr: Any, heads: int, rank: int, rotary: int,
        page_size: int, causal: bool, sm_scale: float, *dtypes: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
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

    def run(
        self, q_nope: Any, q_pe: Any, ckv: Any, kpe: Any, out: Any = None, lse: Any = None, return_lse: bool = False
    ) -> Any:
        """q_nope: [rows, heads, rank]; ckv: [slots, 1, rank]. Returns `out`; with `return_lse` the LSE of base 2 beside it."""
        import torch

        q, slots = torch.cat([q_nope, q_pe], -1), self._kv_indices_buf.long()
        out = torch.empty_like(q_nope) if out is None else out
        out.fill_(math.nan)
        lse = torch.full(q_nope.shape[:2], math.nan) if lse is None else lse
        for b, length in enumerate(self.lengths):
            rows, at = slice(self.rows[b], self.rows[b + 1]), slots[self.pages[b] : self.pages[b] + length]
            key, value = torch.cat([ckv[at], kpe[at]], -1).flatten(1)[:, None], ckv[at].flatten(1)[:, None]
            key, value = (one.expand(-1, q.shape[1], -1) for one in (key, value))
            result, natural = emulators.attention(q[rows], key, value, self._sm_scale, self._causal)
            out[rows], lse[rows] = result.to(out.dtype), (natural / math.log(2)).float()
        return (out, lse) if return_lse else out


def install() -> None:
    home = module(_ATTENTION + "flashinfer_mla_backend")
    PagedLatent.run = device.launched(PagedLatent.run)
    home.BatchMLAPagedAttentionWrapper = PagedLatent
    home.BatchPrefillWithRaggedKVCacheWrapper = flashinfer.RaggedPrefill
    _flashmla()


def _flashmla() -> None:
    # What the backend's module, or one that it imports, takes from compiled packages: by release the one or the other
    _compiled("sgl_kernel.flash_mla", "get_mla_metadata", "flash_mla_with_kvcache", "flash_mla_sparse_fwd")
    _compiled("flash_mla", "fused_norm_rope_attn_rope_cast")
    _compiled("flash_mla.flash_mla_interface", "FlashMLASchedMeta")
    home = module(_ATTENTION + "flashmla_backend")
    home.get_mla_metadata = flashmla.schedule
    home.flash_mla_with_kvcache = device.launched(_flash_mla_with_kvcache)


def _flash_mla_with_kvcache(*, block_table: Any, **launch: Any) -> Any:
    """Which reads a table by its row's stride, however many columns it is said to have: a graph says those of capture."""
    rows, stride = block_table.shape[0], block_table.stride(0)
    return flashmla.flash_mla_with_kvcache(block_table=block_table.as_strided((rows, stride), (stride, 1)), **launch)


def _compiled(name: str, *names: str) -> None:
    made = types.ModuleType(name)
    vars(made).update(dict.fromkeys(names))
    sys.modules[name] = made
