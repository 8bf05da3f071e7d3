"""Correction of sglang.retraction-leak.

A request that is taken back gives up the KV of the tokens whose results are known. Where steps overlap, a step in flight writes
one more: of a decode, or the last one of an answer that is computed again. Its slot becomes free with the others.
"""

from __future__ import annotations

from typing import Any


def left_over(target: Any, instance: Any, idx: int) -> range:
    """Columns, in the row of a request that is taken back, of slots that the engine would leave to nobody."""
    request, algorithm = instance.reqs[idx], instance.spec_algorithm
    if not (instance.enable_overlap and algorithm.is_none()) or request.finished():
        return range(0)
    known = len(request.origin_input_ids) + max(len(request.output_ids) - 1, 0)
    return range(next_page(known, instance.token_to_kv_pool_allocator.page_size), int(instance.seq_lens_cpu[idx]))


def next_page(tokens: int, page: int) -> int:
    """Where tokens have a page of their own. Those before lie in one that becomes free with the tokens that are known."""
    return -(-tokens // page) * page


def release_req(call: Any, instance: Any, idx: int) -> Any:
    row = instance.reqs[idx].req_pool_idx
    result = call()
    slots = instance.req_to_token_pool.req_to_token[row, call.found.start : call.found.stop]
    instance.token_to_kv_pool_allocator.free(slots)
    call.corrected()
    return result
