"""Corrections of sglang.zero-kv-rows.

Signatures are those of 0.5.3-0.5.10.post1 and are part of the digests: `forward_batch` is the fifth argument of
`forward_extend(q, k, v, layer, forward_batch, …)` in all of them.
"""

from __future__ import annotations

import math
from typing import Any

from attnfix.compat.fix import NOT_NEEDED

_FLAGS = "attnfix_chunk_has_zero_kv"


def prepare_chunked_prefix_cache_info(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """Once per batch: what was known of its chunks is forgotten; the first layer looks at the new ones."""
    vars(instance).pop(_FLAGS, None)
    return NOT_NEEDED


def forward_extend(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """After a prefix chunk with empty requests: their rows get out 0 and lse -inf, in place, by one launch.

    out: [tokens, heads, v_head_dim]; lse: [tokens, heads] float32. Rows past `cum_seq_lens[-1]` are padding, left alone.
    """
    forward_batch = args[4]
    if not forward_batch.attn_attend_prefix_cache:
        return NOT_NEEDED
    chunk = forward_batch.prefix_chunk_idx
    metadata = instance.forward_prefill_metadata
    if not _flags(forward_batch)[chunk] or metadata is None or getattr(metadata, "fallback_to_flashinfer_impl", False):
        return NOT_NEEDED
    result = wrapped(*args, **kwargs)
    if type(result) is not tuple:
        return result
    from attnfix.kernels import fixup_zero_kv_rows

    out, lse = result
    fixup_zero_kv_rows(out, lse, forward_batch.prefix_chunk_seq_lens[chunk], metadata.cum_seq_lens)
    wrapped.corrected(rows=_empty_rows(forward_batch, chunk))
    return result


def _flags(forward_batch: Any) -> list[bool]:
    """One bool per chunk, True where some request has no KV in it. Host values alone, once per batch."""
    flags = getattr(forward_batch, _FLAGS, None)
    if flags is None:
        shortest = min(forward_batch.extend_prefix_lens_cpu, default=math.inf)
        flags = [shortest <= start for start in _chunk_starts(forward_batch)]
        setattr(forward_batch, _FLAGS, flags)
    return flags


def _chunk_starts(forward_batch: Any) -> range:
    """Chunk i covers `prefix_chunk_len` positions of every request from i * prefix_chunk_len on."""
    length = forward_batch.prefix_chunk_len or 1
    return range(0, (forward_batch.num_prefix_chunks or 0) * length, length)


def _empty_rows(forward_batch: Any, chunk: int) -> int:
    start = chunk * forward_batch.prefix_chunk_len
    lens = zip(forward_batch.extend_prefix_lens_cpu, forward_batch.extend_seq_lens_cpu)
    return sum(new for prefix, new in lens if prefix <= start)
