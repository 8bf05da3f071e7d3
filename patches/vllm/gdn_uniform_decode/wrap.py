"""Correction of vllm.gdn-uniform-decode."""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import NOT_NEEDED

#: Kept with the batch, whose size most steps leave as it is: slices cost as much as their difference
_VIEWS = "attnfix_views"
_NO_VIEWS: tuple[Any, ...] = (None,) * 6


def determine_batch_execution_and_padding(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(num_tokens, num_reqs, num_scheduled_tokens_np: int32 [requests], max_num_scheduled_tokens, …)`.

    The engine's own argument says that the batch is no decode step, where its shape alone says that it is one.
    """
    longest = args[3]
    if longest <= 1 or longest != instance.uniform_decode_query_len or args[0] != longest * args[1]:
        return NOT_NEEDED  # no batch in the shape of a speculative decode step
    if not prefills(instance.input_batch, args[2]) or not instance.model_config.is_hybrid:
        return NOT_NEEDED
    forced = wrapped.parameters.index("force_uniform_decode")
    if args[forced] is not None:
        return NOT_NEEDED
    wrapped.corrected()
    return wrapped(*args[:forced], False, *args[forced + 1 :], **kwargs)


def prefills(input_batch: Any, scheduled: Any) -> bool:
    """Whether a request's scheduled tokens are all known already: of a prompt, or computed again after a preemption.

    The last token of a decode step is the last known one, and drafts follow it. All three are NumPy arrays, int32 [requests].
    """
    count = len(scheduled)
    size, all_known, all_computed, known, computed, one_each = getattr(input_batch, _VIEWS, _NO_VIEWS)
    same = all_known is input_batch.num_tokens_no_spec and all_computed is input_batch.num_computed_tokens_cpu
    if size != count or not same:
        known, computed, one_each = keep_views(input_batch, count)
    left = known - computed
    if left.tobytes() == one_each:  # as in most decode steps, and half the time of a comparison
        return False
    return bool((left >= scheduled).any())


def keep_views(input_batch: Any, count: int) -> tuple:
    """Of both arrays up to `count`, and how their difference looks where one token is left of each request."""
    arrays = input_batch.num_tokens_no_spec, input_batch.num_computed_tokens_cpu
    views = *(array[:count] for array in arrays), (1).to_bytes(4, sys.byteorder) * count
    setattr(input_batch, _VIEWS, (count, *arrays, *views))
    return views
