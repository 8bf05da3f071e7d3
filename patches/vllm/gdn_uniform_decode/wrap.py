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
    if kwargs.get(_FORCED) is not None or len(args) > 4 or not looks_like_decode(instance, args, kwargs):
        return NOT_NEEDED
    if not prefills(instance.input_batch, _BATCH.of("num_scheduled_tokens_np", args, kwargs)):
        return NOT_NEEDED
    wrapped.corrected()
    return wrapped(*args, **{**kwargs, _FORCED: False})


def looks_like_decode(runner: Any, args: tuple, kwargs: dict) -> bool:
    """Whether the model keeps a recurrent state, and the batch has the shape of a speculative decode step."""
    length = runner.uniform_decode_query_len
    if length <= 1 or _BATCH.of("max_num_scheduled_tokens", args, kwargs) != length:
        return False
    of_all = length * _BATCH.of("num_reqs", args, kwargs)
    return _BATCH.of("num_tokens", args, kwargs) == of_all and runner.model_config.is_hybrid


def prefills(input_batch: Any, scheduled: Any) -> bool:
    """Whether a request's scheduled tokens are all known already: of a prompt, or computed again after a preemption.

    The last token of a decode step is the last known one, and drafts follow it. All three are NumPy arrays, int32 [requests].
    """
    count = len(scheduled)
    known = input_batch.num_tokens_no_spec[:count]
    of_prompts = input_batch.num_computed_tokens_cpu[:count] + scheduled <= known
    return of_prompts.nonzero()[0].size > 0  # NumPy's `any` goes through Python, and takes as long as all before it
