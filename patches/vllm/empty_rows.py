"""Rows of requests without context, made neutral for a merge: what the fixes of vLLM's MLA prefill share."""

from __future__ import annotations

from typing import Any

_FLAGS = "attnfix_chunk_has_empty_rows"


def neutralize(result: tuple, prefill: Any, chunk: int) -> bool:
    """Rows of requests without context in the chunk get out 0 and lse -inf, in place, by one launch; whether there were any.

    Chunk 0 has some of every request that has any context at all.
    out: [tokens, heads, v_head_dim]; lse: [heads, tokens] float32. `seq_lens` is a host tensor: looking at it waits for no GPU.
    """
    context = prefill.chunked_context
    if not _flags(context)[chunk]:
        return False
    from attnfix.kernels import fixup_zero_kv_rows

    out, lse = result
    fixup_zero_kv_rows(out, lse.t(), None, prefill.query_start_loc, cum_kv_lens=context.cu_seq_lens[chunk])
    return True


def _flags(context: Any) -> list[bool]:
    """Of each chunk, whether some request has no context in it: looked at once per batch, since every layer asks."""
    flags = getattr(context, _FLAGS, None)
    if flags is None:
        flags = [not full for full in context.seq_lens.all(-1).tolist()]
        setattr(context, _FLAGS, flags)
    return flags
