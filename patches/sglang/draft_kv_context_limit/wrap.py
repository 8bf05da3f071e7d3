"""Correction of sglang.draft-kv-context-limit.

The multi-step backends of FlashInfer, of its latent attention and of Triton take `max_context_len` for the width of their rows
of KV indices alone, and the backends of their steps have one of their own.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call

#: Indices of all steps that the index kernel reaches, whose offsets are int32: half of them, since graphs and ranks of data
#: parallelism fill batches up with requests that the pool has no room for. Later releases refuse rows that go beyond
_OFFSETS = 2**30
_ALIGNED = 16  # indices: rows begin where the engine's own do, for whom Triton compiles by that


def lists_slots(target: Any, instance: Any) -> bool:
    """Not of an heir that plans its steps by itself: TRT-LLM's backends derive from FlashInfer's."""
    planning = next((kind for kind in type(instance).__mro__ if "init_forward_metadata" in vars(kind)), None)
    return planning is not None and target.function.__qualname__ == f"{planning.__qualname__}.__init__"


def init(call: Call, instance: Any, model_runner: Any) -> Any:
    """`FlashInferMultiStepDraftBackend(model_runner, …)`, and those of its kind."""
    result = call()
    requests, slots = model_runner.req_to_token_pool.req_to_token.shape
    width = room(instance, slots)
    if width > instance.max_context_len and instance.speculative_num_steps * requests * instance.topk * width < _OFFSETS:
        instance.max_context_len = width
        call.corrected()
    return result


def room(backend: Any, slots: int) -> int:
    """KV indices of one branch: a request of as many tokens as it can have slots, and one token of each draft step."""
    return -(-(slots + backend.speculative_num_steps) // _ALIGNED) * _ALIGNED
