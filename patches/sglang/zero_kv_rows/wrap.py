"""Corrections of sglang.zero-kv-rows."""

from __future__ import annotations

import math
from typing import Any

from attnfix.compat.fix import Call

_FLAGS = "attnfix_chunk_has_zero_kv"


def prepare_chunked_prefix_cache_info(call: Call, instance: Any) -> Any:
    """Once per batch: what was known of its chunks is forgotten; the first layer looks at the new ones."""
    vars(instance).pop(_FLAGS, None)
    return call()


def has_empty_requests(target: Any, instance: Any, forward_batch: Any) -> bool:
    """Whether this is a prefix chunk with empty requests, on a path of this backend's own."""
    if not forward_batch.attn_attend_prefix_cache or not _flags(forward_batch)[forward_batch.prefix_chunk_idx]:
        return False
    metadata = instance.forward_prefill_metadata
    return metadata is not None and not getattr(metadata, "fallback_to_flashinfer_impl", False)


def forward_extend(call: Call, instance: Any, forward_batch: Any) -> Any:
    """After a prefix chunk with empty requests: their rows get out 0 and lse -inf, in place, by one launch.

    out: [tokens, heads, v_head_dim]; lse: [tokens, heads] float32. Rows past `cum_seq_lens[-1]` are padding, left alone.
    """
    chunk, metadata = forward_batch.prefix_chunk_idx, instance.forward_prefill_metadata
    result = call()
    if type(result) is not tuple:
        return result
    from attnfix.kernels import fixup_zero_kv_rows

    out, lse = result
    fixup_zero_kv_rows(out, lse, forward_batch.prefix_chunk_seq_lens[chunk], metadata.cum_seq_lens)
    call.corrected(rows=_empty_rows(forward_batch, chunk))
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
