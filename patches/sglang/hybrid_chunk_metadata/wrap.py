"""Correction of sglang.hybrid-chunk-metadata.

The model asks the backend it sees whether it has `init_mha_chunk_metadata`, and calls it. A hybrid backend gets one, which
hands over to the backend that will attend, where FlashInfer's kernel needs the plan that this one makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attnfix.compat.fix import Call

_METHOD = "init_mha_chunk_metadata"
#: It has the method from FlashInfer's backend, and attends to a chunk by a kernel of its own; so do its heirs
_OWN_KERNEL = "TRTLLMMLABackend"


def init_hybrid(call: Call, instance: Any) -> Any:
    """`HybridAttnBackend(model_runner, prefill_backend, decode_backend)`."""
    return _with_plan(call, instance)


def init_hybrid_linear(call: Call, instance: Any) -> Any:
    """`HybridLinearAttnBackend(full_attn_backend, linear_attn_backend, full_attn_layers)`."""
    return _with_plan(call, instance)


def _with_plan(call: Call, instance: Any) -> Any:
    result = call()
    inner = behind(instance)
    plan = getattr(inner, _METHOD, None)
    if plan is None or hasattr(instance, _METHOD) or attends_by_its_own_kernel(inner):
        return result
    if _METHOD not in vars(inner):  # else a hybrid backend within has got its own here, which counts
        plan = call.guard(handing_over(plan, call.corrected), no_plan, plans=True)
    setattr(instance, _METHOD, plan)
    return result


def behind(backend: Any) -> Any:
    """Whom a hybrid backend hands a prefill's full attention over to; None of any other backend."""
    full, *_ = getattr(backend, "attn_backend_list", [None])
    return full or getattr(backend, "prefill_backend", None)


def attends_by_its_own_kernel(backend: Any) -> bool:
    while (inner := behind(backend)) is not None:
        backend = inner
    return any(kind.__name__ == _OWN_KERNEL for kind in type(backend).__mro__)


def handing_over(plan: Callable[..., Any], count: Callable[[], None]) -> Callable[..., Any]:
    def init_mha_chunk_metadata(forward_batch: Any, disable_flashinfer_ragged: bool = False) -> Any:
        """Once per batch with cached tokens."""
        result = plan(forward_batch, True) if disable_flashinfer_ragged else plan(forward_batch)
        count()
        return result

    return init_mha_chunk_metadata


def no_plan(*args: Any, **kwargs: Any) -> None:
    """A backend without the method: the model goes on."""
