"""Correction of vllm.dcp-empty-shard."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import NOT_NEEDED


def decode(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(q, kv_c_and_k_pe_cache, attn_metadata, layer)`; returns (out [rows, heads, kv_lora_rank], lse [rows, heads] or None).

    Which requests have nothing on this rank is known on the GPU alone, so every decode on several ranks is masked; it is
    counted, whether or not there was one. Part of what a CUDA graph captures: the lengths are the kernel's own.
    """
    if (instance.dcp_world_size or 1) <= 1:
        return NOT_NEEDED
    result = wrapped(*args, **kwargs)
    out, lse = result
    if lse is None:
        return result
    seq_lens = args[2].decode.seq_lens
    queries, rest = divmod(out.shape[0], len(seq_lens))
    if not rest:
        neutralize(out, lse, seq_lens, queries)
        wrapped.corrected()
    return result


def neutralize(out: Any, lse: Any, seq_lens: Any, queries: int) -> None:
    """Rows of requests without KV get out 0 and LSE -inf, in place; `queries` rows of each request, one after another."""
    empty = seq_lens == 0
    if queries > 1:
        empty = empty.repeat_interleave(queries)
    out.masked_fill_(empty[:, None, None], 0)
    lse.masked_fill_(empty[:, None], float("-inf"))
