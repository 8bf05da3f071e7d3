"""Correction of vllm.gdn-uniform-decode."""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import Call

#: Kept with the batch, whose size most steps leave as it is: slices cost as much as their difference
_VIEWS = "attnfix_views"
_NO_VIEWS: tuple[Any, ...] = (None,) * 6


def has_the_shape_of_a_decode_step(
    target: Any, instance: Any, num_tokens: int, num_reqs: int, num_scheduled_tokens_np: Any, max_num_scheduled_tokens: int,
    force_eager: bool, force_uniform_decode: bool | None,
) -> bool:  # fmt: skip
    """Whether a speculative decode step would look so, and the batch is none, where a full graph may be run for it.

    num_scheduled_tokens_np: int32 [requests].
    """
    longest = max_num_scheduled_tokens
    if longest <= 1 or longest != instance.uniform_decode_query_len or num_tokens != longest * num_reqs:
        return False
    if not prefills(instance.input_batch, num_scheduled_tokens_np) or not instance.model_config.is_hybrid:
        return False
    # The mode may have been lowered since the server's start
    return force_uniform_decode is None and not force_eager and instance.compilation_config.cudagraph_mode.has_full_cudagraphs()


def determine_batch_execution_and_padding(call: Call, instance: Any) -> Any:
    """The engine's own argument says that the batch is no decode step."""
    call.corrected()
    return call(force_uniform_decode=False)


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
