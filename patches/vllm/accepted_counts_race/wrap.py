"""Correction of vllm.accepted-counts-race."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


def gathers_counts(target: Any, instance: Any) -> bool:
    """Whether the runner will take the counts of the last step by the rows that its requests had there.

    It does so where steps are prepared ahead. Elsewhere the counts are on the host before the next step begins, and belong to
    the rows as they are moved.
    """
    if not instance.use_async_scheduling or instance.num_accepted_tokens_event is None or not instance.model_config.is_hybrid:
        return False
    cls: Any = type(instance)
    return reads_counts(cls, target.function.__module__, instance.cache_config.mamba_cache_mode == "align")


@cache
def reads_counts(cls: Any, module: str, align: bool) -> bool:
    """Up to 0.23.0 the runner reads the counts on the host in every mode; later in mode "align" alone. Of a runner that is
    derived from it, and prepares its inputs by itself, nothing is known."""
    prepare: Any = inspect.unwrap(cls._prepare_inputs)
    if prepare.__module__ != module:
        return False
    return align or "needs_cpu_accepted_counts" not in prepare.__code__.co_varnames


def update_states(call: Any, instance: Any, scheduler_output: Any) -> Any:
    """Moves the rows of the batch, and leaves the counts in the rows of the last step, whenever their copy lands."""
    batch = instance.input_batch
    with others_moved(batch) as moved:
        result = call()
    if not batch.prev_req_id_to_index:
        if scheduler_output.total_num_scheduled_tokens and counts_for_strangers(instance):
            call.corrected()
    elif moved_away(moved, batch.prev_req_id_to_index):
        call.corrected()
    return result


@contextmanager
def others_moved(batch: Any) -> Iterator[Any]:
    """Inside, numbers of rows are moved where the batch would move its counts. The copy from the GPU has the memory itself."""
    counts = batch.num_accepted_tokens_cpu
    batch.num_accepted_tokens_cpu = moved = numbers(len(counts), counts.dtype)
    try:
        yield moved
    finally:
        batch.num_accepted_tokens_cpu = counts


def numbers(count: int, dtype: Any) -> Any:
    import numpy as np

    return np.arange(2, count + 2, dtype=dtype)  # no row's number is what a new request's count is set to


def moved_away(moved: Any, last: Any) -> bool:
    """Whether the count of a request that goes on would be gone from the row where it is looked for. last: request -> row"""
    import numpy as np

    there = numbers(len(moved), moved.dtype)
    if moved.tobytes() == there.tobytes():  # as in most steps
        return False
    return not set(np.flatnonzero(moved != there).tolist()).isdisjoint(last.values())


def counts_for_strangers(instance: Any) -> bool:
    """Where no row goes on from the last step, the runner takes the counts as they lie: all are set to 1. Whether one was not.

    A copy that is still under way would land on them. The runner waits for it in this step, before it reads them.
    """
    instance.num_accepted_tokens_event.synchronize()
    counts = instance.input_batch.num_accepted_tokens_cpu
    other = bool((counts[: instance.input_batch.num_reqs] != 1).any())
    counts.fill(1)
    return other
