"""Correction of sglang.lora-captured-segments.

Segments are runs of at most a chunk's tokens of one adapter. A kernel's grid has a program for each request, and its programs
from `num_segments` on end at once. A graph keeps that number of its capture, where no request has an adapter: as many as one
adapter needs. Here a graph is captured with the most that a batch of its size may have, and batches leave empty those that they
lack.
"""

from __future__ import annotations

from typing import Any


def in_a_graph(target: Any, instance: Any, use_cuda_graph: bool = False, batch_info: Any = None) -> bool:
    """Whether the batch is laid out for a graph. Up to 0.5.5.post2 the buffers of graphs are handed over instead."""
    return use_cuda_graph or batch_info is not None


def prepare_lora_batch(call: Any, instance: Any, forward_batch: Any, weight_indices: list[int], lora_ranks: list[int]) -> Any:
    """`weight_indices`: of each request, the slot of its adapter; `lora_ranks`: of each slot, 0 where the batch has no use for
    its adapter."""
    result, info = call(), instance.batch_info
    chunk = call.target.function.__globals__["MIN_CHUNK_SIZE"]
    requests, segments = len(weight_indices), info.num_segments
    each = forward_batch.spec_info.draft_token_num if forward_batch.forward_mode.is_target_verify() else 1
    info.num_segments = most_segments(requests, each, len(lora_ranks), chunk)
    if not hasattr(instance, "moe_cg_buffers"):  # those of experts have a place for each request
        info.bs = max(info.bs, info.num_segments)  # programs of a grid: fewer than segments beyond a chunk of drafts
    leave_empty(info, segments, requests * each, unused(lora_ranks))
    if segments > -(-requests * each // info.max_len):
        call.corrected()
    return result


def most_segments(requests: int, each: int, slots: int, chunk: int) -> int:
    """What requests of `each` tokens may need, whatever adapters they have: a segment that is not full for each adapter, and
    full ones for the tokens that are left."""
    begun = min(requests, slots)
    return min(requests * -(-each // chunk), begun + (requests * each - begun) // chunk)


def leave_empty(info: Any, segments: int, tokens: int, slot: int) -> None:
    """Segments behind the batch's own: empty, for other releases, and of a slot whose programs end at once."""
    info.weight_indices[segments:].fill_(slot)
    info.seg_indptr[segments + 1 :].fill_(tokens)


def unused(lora_ranks: list[int]) -> int:
    """A slot without an adapter, as programs see it; where a batch uses all, one whose programs compute nothing, in vain."""
    return lora_ranks.index(0) if 0 in lora_ranks else 0
