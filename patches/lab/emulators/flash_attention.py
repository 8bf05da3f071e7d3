"""A stand-in for FlashAttention 3 over a paged KV cache, and for its scheduler: they need Hopper.

Like `emulators` it knows no fix. Source: `mha_fwd_get_scheduler_metadata`, `mha_fwd` and `num_splits_heuristic` of vLLM's fork
(hopper/flash_api.cpp, heuristics.h): 0 splits mean that the heuristic chooses; short KV is never split; and the length of the
scheduler's metadata follows from whether there is more than one split, which `mha_fwd` checks.
"""

from __future__ import annotations

import torch

from attnfix.patches.lab import emulators

#: KV up to this length is one split; longer KV may be several
UNSPLIT = 512


class MetadataShape(RuntimeError):
    """What `mha_fwd` says to metadata that was made for another number of splits."""


def get_scheduler_metadata(*, batch_size, max_seqlen_k, cache_seqlens, num_splits=0, **launch):
    """int32; zero, since no number depends on who computes it."""
    if len(cache_seqlens) != batch_size:
        raise ValueError("cache_seqlens and batch_size disagree")
    return torch.zeros(_size(batch_size, max_seqlen_k, num_splits), dtype=torch.int32)


def flash_attn_varlen_func(
    *,
    q,
    k,
    v,
    cu_seqlens_q,
    max_seqlen_q,
    max_seqlen_k,
    softmax_scale,
    causal,
    cu_seqlens_k=None,
    seqused_k=None,
    block_table=None,
    scheduler_metadata=None,
    num_splits=0,
    out=None,
    return_softmax_lse=False,
    s_aux=None,
    **launch,
):
    """q: [tokens, heads, d]; k, v: [keys, KV heads, d], or with `block_table` [pages, page size, KV heads, d].

    s_aux: a sink per head, which takes part in the softmax and holds no value. Returns out as q, and natural LSE float32
    [heads, tokens], with the sink; rows that belong to no request are undefined.
    """
    q_at = cu_seqlens_q.tolist()
    if scheduler_metadata is not None and len(scheduler_metadata) != _size(len(q_at) - 1, max_seqlen_k, num_splits):
        raise MetadataShape("scheduler_metadata must have shape (metadata_size)")
    result = emulators.stale(q.shape, q.dtype, 10, 11) if out is None else out
    lse = emulators.stale((len(q), q.shape[1]), torch.float32, 2, 12)
    for b in range(len(q_at) - 1):
        rows = slice(q_at[b], q_at[b + 1])
        keys, values = (_of(b, x, cu_seqlens_k, seqused_k, block_table, q.shape[1]) for x in (k, v))
        part, sums = emulators.attention(q[rows], keys, values, softmax_scale, causal)
        if s_aux is not None:
            with_sink = torch.logaddexp(sums, s_aux.double())
            part, sums = part * (sums - with_sink).exp()[..., None], with_sink
        lse[rows] = sums.to(lse.dtype)
        result[rows] = part.to(q.dtype)
    return (result, lse.t().contiguous()) if return_softmax_lse else result


def _of(request, cache, cu_seqlens_k, seqused_k, block_table, heads):
    """Keys or values of one request, for all query heads."""
    if block_table is None:
        found = cache[int(cu_seqlens_k[request]) : int(cu_seqlens_k[request + 1])]
    else:
        position = torch.arange(int(seqused_k[request]))
        found = cache[block_table[request, position // cache.shape[1]].long(), position % cache.shape[1]]
    return found.repeat_interleave(heads // cache.shape[-2], 1)


def _size(requests, max_seqlen_k, num_splits):
    """One number for the semaphore, and per request one, or two where there are several splits; padded to fours."""
    several = num_splits > 1 or (num_splits <= 0 and max_seqlen_k > UNSPLIT)
    return 1 + 4 * -(-requests // 4) * (1 + several)
