"""Rows of requests without context, made neutral for a merge: what the fixes of vLLM's MLA prefill share."""

from __future__ import annotations

from typing import Any

_FLAGS = "attnfix_chunk_has_empty_rows"


def some_in(context: Any, chunk: int) -> bool:
    """Whether some request has no context in the chunk. Chunk 0 has some of every request that has any context at all.

    `seq_lens` is a host tensor: looking at it waits for no GPU. Looked at once per batch, since every layer asks.
    """
    flags = getattr(context, _FLAGS, None)
    if flags is None:
        flags = [not full for full in context.seq_lens.all(-1).tolist()]
        setattr(context, _FLAGS, flags)
    return flags[chunk]


def neutralize(result: tuple, prefill: Any, chunk: int) -> None:
    """Rows of requests without context in the chunk get out 0 and lse -inf, in place, by one launch.

    out: [tokens, heads, v_head_dim]; lse: [heads, tokens] float32.
    """
    from attnfix.kernels import fixup_zero_kv_rows

    out, lse = result
    at = prefill.chunked_context.cu_seq_lens[chunk]
    fixup_zero_kv_rows(out, lse.t(), None, prefill.query_start_loc, cum_kv_lens=at)


def context_leads(lens: list[int]) -> bool:
    """Whether requests with context come before all without. lens: those of the first chunk, which has some of all context."""
    return not any(lens[len(lens) - lens.count(0) :])
