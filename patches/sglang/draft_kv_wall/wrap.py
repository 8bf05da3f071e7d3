"""Correction of sglang.draft-kv-wall.

The multi-step backend takes `max_context_len` for the width of its rows of KV indices alone, and the backends of its steps have
one of their own.
"""

from __future__ import annotations

from typing import Any

_OFFSETS = 2**31  # of the index kernel, int32; later releases refuse rows that are wider


def init(call: Any, instance: Any, model_runner: Any) -> Any:
    """`FlashInferMultiStepDraftBackend(model_runner, …)`."""
    result = call()
    requests, slots = model_runner.req_to_token_pool.req_to_token.shape
    width = room(instance, slots)
    if width > instance.max_context_len and requests * instance.topk * width < _OFFSETS:
        instance.max_context_len = width
        call.corrected()
    return result


def room(backend: Any, slots: int) -> int:
    """KV indices of one branch: a request of as many tokens as it can have slots, and one token of each draft step."""
    return slots + backend.speculative_num_steps
