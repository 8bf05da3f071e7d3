"""A stand-in for FlashMLA's dense decode kernels, which need Hopper: the tile scheduler, the split-KV kernel and its combine.

Source: `get_mla_metadata_kernel`, `flash_fwd_splitkv_mla_kernel` and `flash_fwd_splitkv_mla_combine_kernel` of FlashMLA. Like
`emulators` it knows no fix, and draws at random what the kernels leave undefined.
"""

from __future__ import annotations

import math

import torch

from attnfix.patches.lab.emulators import stale

#: Keys of a block; blocks that a request costs beyond its own; rows of queries that an SM takes; SMs of the GPU
BLOCK, OVERHEAD, ROWS, SMS = 64, 5, 64, 6


def schedule(cache_seqlens, num_q_tokens_per_head_k, num_heads_k, **kind):
    """Who computes what: (tile_scheduler_metadata int32 [parts, 8], num_splits int32 [requests + 1]).

    A part runs from block `begin` of one request to block `end` of another: [request, begin, request, end, split of the first].
    """
    blocks = [-(-n // BLOCK) for n in cache_seqlens.tolist()]
    parts = max(SMS // num_heads_k // -(-num_q_tokens_per_head_k // ROWS), 1)
    payload = -(-sum(n + OVERHEAD for n in blocks) // parts) + OVERHEAD
    tiles, splits = torch.zeros(parts, 8, dtype=torch.int32), [0]
    request = block = split = 0
    for tile in tiles:
        tile[0], tile[1], tile[4], left = request, block, split, payload
        while request < len(blocks):
            rest = blocks[request] - block
            if left >= rest + OVERHEAD:
                splits.append(splits[-1] + split + 1)
                left -= rest + OVERHEAD
                request, block, split = request + 1, 0, 0
                continue
            if left > OVERHEAD:
                block, split = block + left - OVERHEAD, split + 1
            break
        tile[2], tile[3] = (request, block) if block else (request - 1, blocks[request - 1])
    return tiles, torch.tensor(splits, dtype=torch.int32)


def flash_mla_with_kvcache(
    *,
    q,
    k_cache,
    block_table,
    cache_seqlens,
    head_dim_v,
    tile_scheduler_metadata,
    num_splits=None,
    softmax_scale,
    causal,
    descale_q=None,
    descale_k=None,
    is_fp8_kvcache=False,
):
    """q: [requests, tokens, heads, d]; k_cache: [pages, 64, 1, d]. Returns out and natural LSE [requests, heads, tokens].

    With `num_splits` it does what the metadata says; without, as for an unquantised cache, the launch makes its own.
    A request that one part has wholly is written by it. What else a part has goes to the accumulators, which the second
    kernel combines where num_splits says that a request has several: all others it leaves alone.
    """
    requests, tokens, heads, _ = q.shape
    tiles = tile_scheduler_metadata
    if num_splits is None:
        tiles, num_splits = schedule(cache_seqlens, tokens * heads, 1)
    scale = softmax_scale * (1.0 if descale_q is None else float(descale_q * descale_k))
    value_scale = 1.0 if descale_k is None else float(descale_k)
    out = stale((requests, tokens, heads, head_dim_v), torch.bfloat16, 10, 11)
    lse = stale((requests, heads, tokens), torch.float32, 2, 12)
    lens, at, partial = cache_seqlens.tolist(), num_splits.tolist(), {}
    for first, begin, last, end, split, *_ in tiles.tolist():
        for b in range(first, last + 1 if first < requests else first):
            whole = -(-lens[b] // BLOCK)
            low, high = begin if b == first else 0, end if b == last else whole
            keys = _keys(k_cache, block_table[b], low * BLOCK, min(high * BLOCK, lens[b]))
            one = _attend(q[b], keys, scale, head_dim_v, lens[b], low * BLOCK, causal)
            if low == 0 and high == whole:
                out[b], lse[b] = (one[0] * value_scale).to(out.dtype), one[1].t().float()
            else:
                partial[at[b] + (split if b == first else 0)] = one
    for b in range(requests):
        if at[b + 1] - at[b] > 1:
            nothing = stale(out[b].shape, torch.float64, 10, 11), stale((tokens, heads), torch.float64, 2, 12)
            outs, lses = zip(*(partial.get(slot, nothing) for slot in range(at[b], at[b + 1])))
            weights = torch.stack(lses).softmax(0)
            out[b] = ((torch.stack(outs) * weights[..., None]).sum(0) * value_scale).to(out.dtype)
            lse[b] = torch.stack(lses).logsumexp(0).t().float()
    return out, lse


def by_stride(*, block_table, **launch):
    """The kernel, which reads a table by its row's stride, however many columns it is said to have: a graph says those of
    capture."""
    rows, stride = block_table.shape[0], block_table.stride(0)
    return flash_mla_with_kvcache(block_table=block_table.as_strided((rows, stride), (stride, 1)), **launch)


def _keys(k_cache, pages, start, stop):
    position = torch.arange(start, max(start, stop))
    return k_cache[pages[position // BLOCK].long(), position % BLOCK, 0].double()


def _attend(q, keys, scale, head_dim_v, length, start, causal):
    """Attention of one request's tokens, its last, to keys from position `start` on: out and LSE, float64."""
    tokens, heads, _ = q.shape
    if not len(keys):
        return torch.zeros(tokens, heads, head_dim_v).double(), torch.full((tokens, heads), -math.inf).double()
    scores = torch.einsum("qhd,kd->qhk", q.double(), keys) * scale
    if causal:
        seen = start + torch.arange(len(keys)) <= length - tokens + torch.arange(tokens)[:, None]
        scores = scores.masked_fill(~seen[:, None], -math.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - torch.where(lse.isinf(), 0.0, lse)[..., None]).exp()
    return torch.einsum("qhk,kd->qhd", weights, keys[:, :head_dim_v]), lse
