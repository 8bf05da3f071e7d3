"""Correction of vllm.gdn-uniform-decode."""

from __future__ import annotations

from typing import Any

_NAMES = ("num_tokens", "num_reqs", "num_scheduled_tokens_np", "max_num_scheduled_tokens")
_FORCED = "force_uniform_decode"


def determine_batch_execution_and_padding(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(num_tokens, num_reqs, num_scheduled_tokens_np: int32 [requests], max_num_scheduled_tokens, …)`.

    The engine's own argument says that the batch is no decode step, where its shape alone says that it is one.
    """
    named = {**dict(zip(_NAMES, args)), **kwargs}
    free = len(args) <= len(_NAMES) and named.get(_FORCED) is None
    if free and looks_like_decode(instance, named) and prefills(instance.input_batch, named["num_scheduled_tokens_np"]):
        kwargs = {**kwargs, _FORCED: False}
        wrapped.corrected()
    return wrapped(*args, **kwargs)


def looks_like_decode(runner: Any, batch: dict) -> bool:
    """Whether the model keeps a recurrent state, and the batch has the shape of a speculative decode step."""
    length = runner.uniform_decode_query_len
    shape = batch["max_num_scheduled_tokens"], batch["num_tokens"]
    return length > 1 and shape == (length, length * batch["num_reqs"]) and runner.model_config.is_hybrid


def prefills(input_batch: Any, scheduled: Any) -> bool:
    """Whether a request's scheduled tokens are all known already: of a prompt, or computed again after a preemption.

    The last token of a decode step is the last known one, and drafts follow it. All three are NumPy arrays, int32 [requests].
    """
    count = len(scheduled)
    known = input_batch.num_tokens_no_spec[:count]
    return bool((input_batch.num_computed_tokens_cpu[:count] + scheduled <= known).any())
