"""Correction of sglang.retraction-leak.

A request that is taken back gives up the KV of the tokens whose results are known. Where steps overlap, one more token was in
flight: its slot becomes free with the result of its step, as that of a request that has ended.
"""

from __future__ import annotations

from typing import Any


def in_decode(target: Any, instance: Any, batch: Any) -> list[int]:
    return slots(instance, batch, 0)


def in_prefill(target: Any, instance: Any, batch: Any) -> list[int]:
    """Requests that decode stand behind the prompts of a batch, with --enable-mixed-chunk."""
    decoding = batch.decoding_reqs
    return slots(instance, batch, len(batch.reqs) - len(decoding)) if decoding else []


def slots(scheduler: Any, batch: Any, first: int) -> list[int]:
    """Of the batch's requests from `first` on, each with one token: places in `out_cache_loc` of what nobody frees."""
    if not (scheduler.enable_overlap and batch.spec_algorithm.is_none()):
        return []
    behind = len(batch.out_cache_loc) - len(batch.reqs)
    return [
        behind + at
        for at, request in enumerate(batch.reqs[first:], first)
        if request.is_retracted and not request.finished() and begins_page(request, scheduler.page_size)
    ]


def begins_page(request: Any, page: int) -> bool:
    """Whether the token in flight has a page of its own. Else it lies in one that is free with the token before."""
    return bool((len(request.origin_input_ids) + len(request.output_ids) - 1) % page == 0)


def process_batch_result(call: Any, instance: Any, batch: Any) -> Any:
    result = call()
    for at in call.found:
        instance.token_to_kv_pool_allocator.free(batch.out_cache_loc[at : at + 1])
        call.corrected()
    return result
