"""Correction of sglang.encoder-decode-lengths.

The engine's signature, in all releases that are corrected and part of their digests: `update_cross_attention(req_pool_indices,
seq_lens, seq_lens_cpu, seq_lens_sum, decode_wrappers, …)`. With `seq_lens_cpu` the host's indptr is made from it, for both
wrappers; without, FlashInfer copies the indptr that was made for each.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import NOT_NEEDED


def update_cross_attention(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`seq_lens_cpu`: int tensor [bs] on the host, lengths of the text. Withheld where a plan would be made from it."""
    lens, wrappers = args[2], args[4]
    if lens is None or not planned_from_host(wrappers):
        return NOT_NEEDED
    result = wrapped(*args[:2], shown(lens), *args[3:], **kwargs)
    wrapped.corrected(rows=lens.shape[0])
    return result


def shown(lens: Any) -> Any:
    """The lengths on the host that the engine gets instead: none."""
    return None


def planned_from_host(wrappers: Any) -> bool:
    """Whether the engine has put its fast plan, a partial, in the place of FlashInfer's own: so from a graph's capture on."""
    return hasattr(wrappers[1].begin_forward, "func")
