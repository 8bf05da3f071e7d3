"""Correction of vllm.dcp-decode-lse-base.

The engine hands the decode kernel a tensor for its LSE and combines that over the ranks. It gets a copy of the metadata whose
decode wrapper looks on: after the kernel, the LSE is brought to base e. Under decode context parallelism these releases capture
no attention in CUDA graphs.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from attnfix.patches.shared import lse_base
from attnfix.patches.vllm.shared.dcp_lse_base import Step, context_row


def unsettled(target: Any, instance: Any, query: Any, attn_metadata: Any) -> Any:
    """The path of the decode kernel, or nothing."""
    metadata = attn_metadata
    if instance.dcp_world_size == 1 or metadata is None or metadata.decode_wrapper is None or metadata.decode_use_trtllm:
        return None
    kernel = metadata.decode_wrapper
    path = (type(kernel).__name__, getattr(kernel, "_backend", "?"), "DCP", "decode", query.dtype)
    return None if path in target.left_alone else path


def forward(call: Any, instance: Any, attn_metadata: Any) -> Any:
    own = copy(attn_metadata)
    own.decode_wrapper = watch = _Watch(call.target, attn_metadata.decode_wrapper, call.found)
    result = call(attn_metadata=own)
    if watch.errors:
        raise watch.errors[0]
    return result


class _Watch:
    """The engine's decode wrapper, whose LSE is brought to base e."""

    def __init__(self, target: Any, kernel: Any, path: tuple):
        self._target, self._kernel, self._path = target, kernel, path
        self.errors: list[Exception] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def run(self, query: Any, cache: Any, **options: Any) -> Any:
        result = self._kernel.run(query, cache, **options)
        try:
            lse, scale = options["lse"], options.get("k_scale") or 1.0
            lse_base.to_natural(self._target, self._path, lse, lambda: row(self._kernel, query, cache, lse, scale))
        except Exception as error:  # no error of the engine's: it disarms the fix once the engine's function is through
            self.errors.append(error)
        return result


def row(kernel: Any, q: Any, cache: Any, lse: Any, k_scale: float) -> tuple[float, float] | None:
    """(returned, natural) of a request of this rank's; q: [requests, heads, d]. None where the rank holds nothing of any."""
    if not len(kernel._paged_kv_indices_buf):  # told without a wait for the GPU
        return None
    pages_at, last = kernel._paged_kv_indptr_buf.tolist(), kernel._paged_kv_last_page_len_buf.tolist()
    step = Step(list(range(len(pages_at))), pages_at, last)
    return context_row(kernel, step, q, cache, lse, k_scale)
