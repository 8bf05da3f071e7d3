"""Correction of vllm.empty-context-chunks.

Up to 0.20.2 the target is a method of the attention layer, `(prefill, chunk_idx, q, k, v)`; from 0.21.0 one of the prefill
backend, `(chunk_idx, q, k, v)`, which holds the batch's metadata. The plain and the decode-context-parallel loop call it by
keyword in all of them; both are witnesses.
"""

from __future__ import annotations

from typing import Any


def run_prefill_context_chunk(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """After a chunk in which some request has no context: its rows are neutralised."""
    result = wrapped(*args, **kwargs)
    if neutralize(result, kwargs.get("prefill") or instance._prefill_metadata, kwargs["chunk_idx"]):
        wrapped.corrected()
    return result


def neutralize(result: tuple, prefill: Any, chunk: int) -> bool:
    """Rows of requests without context in the chunk get out 0 and lse -inf, in place, by one launch; whether there were any.

    out: [tokens, heads, v_head_dim]; lse: [heads, tokens] float32. `seq_lens` is a host tensor: looking at it waits for no GPU.
    """
    context = prefill.chunked_context
    if bool(context.seq_lens[chunk].all()):
        return False
    from attnfix.kernels import fixup_zero_kv_rows

    out, lse = result
    fixup_zero_kv_rows(out, lse.t(), None, prefill.query_start_loc, cum_kv_lens=context.cu_seq_lens[chunk])
    return True
