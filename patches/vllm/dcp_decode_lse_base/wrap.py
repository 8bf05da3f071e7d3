"""Correction of vllm.dcp-decode-lse-base.

The engine hands the decode kernel a tensor for its LSE and combines that over the ranks. It gets a copy of the metadata whose
decode wrapper looks on: after the kernel, the LSE is brought to base e. Under decode context parallelism these releases capture
no attention in CUDA graphs.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared import lse_base
from attnfix.patches.vllm.shared.dcp_lse_base import Step, can_be_told, context_row


def unsettled(target: Any, instance: Any, query: Any, attn_metadata: Any) -> Any:
    """The path of the decode kernel, or nothing."""
    metadata = attn_metadata
    if instance.dcp_world_size == 1 or metadata is None or metadata.decode_wrapper is None or metadata.decode_use_trtllm:
        return None
    kernel = metadata.decode_wrapper
    path = (type(kernel).__name__, getattr(kernel, "_backend", "?"), "DCP", "decode", query.dtype)
    return path if path not in target.left_alone and can_be_told(target, kernel, path) else None


def forward(call: Call, instance: Any, attn_metadata: Any) -> Any:
    own, kernel = copy(attn_metadata), attn_metadata.decode_wrapper

    def natural(result: Any, query: Any, cache: Any, *, lse: Any, k_scale: Any = None, **options: Any) -> None:
        lse_base.to_natural(call.target, call.found, lse, lambda: row(kernel, query, cache, lse, k_scale or 1.0))

    own.decode_wrapper = _Watched(kernel, call.watch(kernel.run, natural))
    return call(attn_metadata=own)


class _Watched:
    """The engine's decode wrapper, with another `run`."""

    def __init__(self, kernel: Any, run: Any):
        self._kernel, self.run = kernel, run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)


def row(kernel: Any, q: Any, cache: Any, lse: Any, k_scale: float) -> tuple[float, float] | None:
    """(returned, natural) of a request of this rank's; q: [requests, heads, d]. None where the rank holds nothing of any."""
    if not len(kernel._paged_kv_indices_buf):  # told without a wait for the GPU
        return None
    pages_at, last = kernel._paged_kv_indptr_buf.tolist(), kernel._paged_kv_last_page_len_buf.tolist()
    step = Step(list(range(len(pages_at))), pages_at, last)
    return context_row(kernel, step, q, cache, lse, k_scale)
