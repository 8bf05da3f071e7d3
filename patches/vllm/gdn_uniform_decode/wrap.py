"""Correction of vllm.gdn-uniform-decode."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import NOT_NEEDED
from attnfix.patches.positions import Positions

_BATCH = Positions(num_tokens=0, num_reqs=1, num_scheduled_tokens_np=2, max_num_scheduled_tokens=3)
_FORCED = "force_uniform_decode"


def determine_batch_execution_and_padding(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(num_tokens, num_reqs, num_scheduled_tokens_np: int32 [requests], max_num_scheduled_tokens, …)`.

    The engine's own argument says that the batch is no decode step, where its shape alone says that it is one.
    """
    num_tokens, num_reqs, scheduled, longest = _BATCH.all(args, kwargs)
    if longest <= 1 or longest != instance.uniform_decode_query_len or num_tokens != longest * num_reqs:
        return NOT_NEEDED  # no batch in the shape of a speculative decode step
    if not prefills(instance.input_batch, scheduled) or not instance.model_config.is_hybrid:
        return NOT_NEEDED
    if kwargs.get(_FORCED) is not None or len(args) > 4:
        return NOT_NEEDED
    wrapped.corrected()
    return wrapped(*args, **{**kwargs, _FORCED: False})


def prefills(input_batch: Any, scheduled: Any) -> bool:
    """Whether a request's scheduled tokens are all known already: of a prompt, or computed again after a preemption.

    The last token of a decode step is the last known one, and drafts follow it. All three are NumPy arrays, int32 [requests].
    """
    count = len(scheduled)
    known = input_batch.num_tokens_no_spec[:count]
    of_prompts = input_batch.num_computed_tokens_cpu[:count] + scheduled <= known
    return 1 in of_prompts.tobytes()  # NumPy's `any` goes through Python, and takes as long as all before it
