"""Correction of vllm.empty-context-chunks.

The signature is that of 0.11.1-0.20.2 and part of the digests: `(prefill, chunk_idx, q, k, v)`, always called by keyword;
the plain and the decode-context-parallel loop both call it.
"""

from __future__ import annotations

from typing import Any


def run_prefill_context_chunk(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """After a chunk in which some request has no context: its rows get out 0 and lse -inf, in place, by one launch.

    out: [tokens, heads, v_head_dim]; lse: [heads, tokens] float32. `seq_lens` is a host tensor: looking at it waits for no GPU.
    """
    result = wrapped(*args, **kwargs)
    prefill = kwargs["prefill"] if "prefill" in kwargs else args[0]
    chunk = kwargs["chunk_idx"] if "chunk_idx" in kwargs else args[1]
    context = prefill.chunked_context
    if bool(context.seq_lens[chunk].all()):
        return result
    from attnfix.kernels import fixup_zero_kv_rows

    out, lse = result
    fixup_zero_kv_rows(out, lse.t(), None, prefill.query_start_loc, cum_kv_lens=context.cu_seq_lens[chunk])
    wrapped.corrected()
    return result
