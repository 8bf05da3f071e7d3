"""Correction of sglang.flashinfer-soft-cap.

FlashInfer takes its kernel when it plans. The engine names the soft cap at the call alone, where a kernel without one does not
read it. Each plan gets the cap that all layers of the model have.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import flashinfer_kernels
from attnfix.patches.sglang.shared.flashinfer_kernels import CAP
from attnfix.patches.shared.attribute import attribute


def is_own(target: Any, instance: Any, attn_backend: Any) -> bool:
    """An heir of the backend attends by code of its own, which may name no cap at the call: capping by 0 gives NaN."""
    return type(attn_backend).__name__ == "FlashInferAttnBackend"


def init_updater(call: Call, instance: Any, model_runner: Any, attn_backend: Any) -> Any:
    """Learn the cap of the model's layers, and have the kernels with one, once, when a backend is made."""
    result = call()
    cap = cap_of(model_runner.model)
    if cap and flashinfer_kernels.ready(call.target, kernels(instance, attn_backend, model_runner)):
        setattr(instance, CAP, cap)
    return result


def kernels(updater: Any, backend: Any, model_runner: Any) -> list[Any]:
    """Those of all plans of this backend: where one cannot be had, none is capped."""
    found = []
    if flashinfer_kernels.attends(model_runner, "prefill"):
        found += [flashinfer_kernels.of_prefill(updater, one, soft_cap=True) for one in backend.prefill_wrappers_paged[:1]]
        if found and takes_a_cap(backend.prefill_wrapper_ragged):
            found.append(flashinfer_kernels.of_prefill(updater, backend.prefill_wrapper_ragged, soft_cap=True, ragged=True))
    if flashinfer_kernels.attends(model_runner, "decode"):
        found += [flashinfer_kernels.of_decode(updater, one) for one in backend.decode_wrappers[:1]]
    return found


def cap_of(model: Any) -> float:
    """The soft cap that all attention layers have; 0 where they have none or several, or cap otherwise than by tanh."""
    caps = {
        (float(layer.logit_cap or 0.0), getattr(layer, "logit_capping_method", "tanh"))
        for layer in model.modules()
        if hasattr(layer, "logit_cap") and hasattr(layer, "sliding_window_size")
    }
    cap, method = caps.pop() if len(caps) == 1 else (0.0, "")
    return cap if method == "tanh" and cap > 0 else 0.0


def plans_decode(target: Any, instance: Any, wrapper: Any) -> Any:
    """The cap, where the plan would be without it."""
    cap = getattr(instance, CAP, None)
    return cap if cap and takes_a_cap(wrapper) else None


def plans_prefill(target: Any, instance: Any, wrapper_ragged: Any, wrapper_paged: Any, use_ragged: Any) -> Any:
    """New tokens and cached ones are merged by weights that both must have capped, or neither."""
    cap = getattr(instance, CAP, None)
    if not cap or (use_ragged and not takes_a_cap(wrapper_ragged)):
        return None
    return cap if takes_a_cap(wrapper_paged) else None


def takes_a_cap(wrapper: Any) -> bool:
    """CUTLASS' kernel has none. Once a CUDA graph is captured the engine plans by a function of its own for the kernel of the
    capture, and looks which function it is."""
    return not isinstance(wrapper.begin_forward, partial) and getattr(wrapper, "_backend", None) != "cutlass"


def plan_decode(call: Call, instance: Any, wrapper: Any) -> Any:
    return planned(call, [wrapper])


def plan_prefill(call: Call, instance: Any, wrapper_ragged: Any, wrapper_paged: Any, use_ragged: Any) -> Any:
    return planned(call, [wrapper_ragged, wrapper_paged] if use_ragged else [wrapper_paged])


def planned(call: Call, wrappers: list[Any]) -> Any:
    with ExitStack() as stack:
        for wrapper in wrappers:
            plan = wrapper.begin_forward
            capped = call.guard(with_cap(plan, call.found), plan, plans=True)
            stack.enter_context(attribute(wrapper, "begin_forward", capped))
        result = call()
    if call.failed:
        return call() if len(wrappers) > 1 else result  # none of them capped
    call.corrected()
    return result


def with_cap(plan: Callable[..., Any], cap: float) -> Callable[..., Any]:
    def begin_forward(*args: Any, **kwargs: Any) -> Any:
        return plan(*args, **{"logits_soft_cap": cap, **kwargs})

    return begin_forward
