"""Correction of vllm.accepted-counts-race."""

from __future__ import annotations

import inspect
from typing import Any

from attnfix.compat.fix import Call

#: Kept with the runner: whether it gathers counts. To ask the engine whether a model is hybrid costs more than all else here
_GATHERS = "attnfix_gathers_counts"
#: Kept with the batch: the numbers of its rows
_ROWS = "attnfix_rows"


def gathers_counts(target: Any, instance: Any) -> bool:
    """Whether the runner will take the counts of the last step by the rows that its requests had there.

    It does so where steps are prepared ahead. Elsewhere the counts are on the host before the next step begins, and belong to
    the rows as they are moved.
    """
    if not instance.use_async_scheduling or instance.num_accepted_tokens_event is None:
        return False
    gathers: bool | None = getattr(instance, _GATHERS, None)
    if gathers is None:
        align = instance.cache_config.mamba_cache_mode == "align"
        gathers = instance.model_config.is_hybrid and reads_counts(type(instance), target.function.__module__, align)
        setattr(instance, _GATHERS, gathers)
    return gathers


def reads_counts(cls: Any, module: str, align: bool) -> bool:
    """Up to 0.23.0 the runner reads the counts on the host in every mode; later in mode "align" alone. Of a runner that is
    derived from it, and prepares its inputs by itself, nothing is known."""
    prepare: Any = inspect.unwrap(cls._prepare_inputs)
    if prepare.__module__ != module:
        return False
    return align or "needs_cpu_accepted_counts" not in prepare.__code__.co_varnames


def update_states(call: Call, instance: Any, scheduler_output: Any) -> Any:
    """Moves the rows of the batch, and leaves the counts in the rows of the last step, whenever their copy lands."""
    batch = instance.input_batch
    counts, rows = batch.num_accepted_tokens_cpu, rows_of(batch)
    batch.num_accepted_tokens_cpu = rows.numbers  # the copy from the GPU has the memory of the counts itself
    try:
        result = call()
    finally:
        batch.num_accepted_tokens_cpu = counts
        moved = rows.moved()
    last = batch.prev_req_id_to_index  # request -> row
    if not last:
        if scheduler_output.total_num_scheduled_tokens and counts_for_strangers(instance):
            call.corrected()
    elif moved and not moved.isdisjoint(last.values()):  # a count would be gone from the row where it is looked for
        call.corrected()
    return result


def rows_of(batch: Any) -> Rows:
    rows: Rows | None = getattr(batch, _ROWS, None)
    if rows is None:
        rows = Rows(batch.num_accepted_tokens_cpu)
        setattr(batch, _ROWS, rows)
    return rows


class Rows:
    """Numbers of the rows of a batch, to be moved where it would move its counts."""

    def __init__(self, counts: Any):
        import numpy as np

        # No row's number is what a new request's count is set to
        self.numbers = np.arange(2, len(counts) + 2, dtype=counts.dtype)
        self._in_place, self._bytes = self.numbers.copy(), self.numbers.tobytes()

    def moved(self) -> set[int]:
        """Rows that do not hold their number, none in most steps; all are put back."""
        if self.numbers.tobytes() == self._bytes:
            return set()
        found = (self.numbers != self._in_place).nonzero()[0]
        self.numbers[:] = self._in_place
        return set(found.tolist())


def counts_for_strangers(instance: Any) -> bool:
    """Where no row goes on from the last step, the runner takes the counts as they lie: all are set to 1. Whether one was not.

    A copy that is still under way would land on them. The runner waits for it in this step, before it reads them.
    """
    instance.num_accepted_tokens_event.synchronize()
    counts = instance.input_batch.num_accepted_tokens_cpu
    other = bool((counts[: instance.input_batch.num_reqs] != 1).any())
    counts.fill(1)
    return other
