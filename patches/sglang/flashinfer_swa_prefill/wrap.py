"""Correction of sglang.flashinfer-swa-prefill.

Paged-only prefill is a mode of the engine's own: a layer writes the new tokens' KV and attends to all of it in the cache, in
one call. `init_forward_metadata` chooses between it and the ragged mode, once per batch, and plans. It is shown the switch that
chooses it, and FlashInfer's plan of the window layers gets their window where the release leaves it out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import flashinfer_kernels, window_layers
from attnfix.patches.sglang.shared.requests import of_requests
from attnfix.patches.shared.attribute import attribute

#: Where a backend keeps what was learnt of it
LEARNT = "attnfix_swa_prefill"
#: Batches that the engine plans as plain prefill. Verification, draft extend and diffusion have plans of their own
PLAIN = frozenset({"EXTEND", "MIXED", "SPLIT_PREFILL"})
#: The first release that plans what is cached without the tokens whose KV is written later
_PLANS_PREFIX_ALONE = "0.5.21"


class Learnt(NamedTuple):
    """`window`: how many tokens before its own a window layer's token sees."""

    window: int
    plans_window: bool  # paged-only prefill is planned with the window
    plans_prefix: bool  # ragged prefill plans what is cached, and no more


class Missed(NamedTuple):
    """A batch that the engine as it is would attend to wrongly. `ragged`: in which mode."""

    ragged: bool
    learnt: Learnt


# Once, when a backend is made


def init_updater(call: Call, instance: Any, model_runner: Any, attn_backend: Any) -> Any:
    """Learn what the layers of the model are, and have the kernel of their plans."""
    from packaging.version import Version

    result = call()
    window, plan = instance.sliding_window_size, type(instance).call_begin_forward
    if window_layers.alike(model_runner.model, window):
        learnt = Learnt(
            window,
            "window_left" in inspect.signature(plan).parameters,
            Version(call.target.release) >= Version(_PLANS_PREFIX_ALONE),
        )
        if flashinfer_kernels.ready(call.target, kernels(call.target, instance, attn_backend, model_runner, learnt)):
            setattr(attn_backend, LEARNT, learnt)
    return result


def kernels(target: Any, updater: Any, backend: Any, model_runner: Any, learnt: Learnt) -> list[Any]:
    """Those that plans of this deployment may ask for."""
    right = _of_its_own(backend) or (learnt.plans_window and _paged(target, backend))
    if right or not flashinfer_kernels.attends(model_runner, "prefill"):
        return []
    if not flashinfer_kernels.longer_than(learnt.window, model_runner) and learnt.plans_prefix:
        return []
    capped = bool(getattr(updater, flashinfer_kernels.CAP, None))
    return [flashinfer_kernels.of_prefill(updater, backend.prefill_wrappers_paged[0], window=True, soft_cap=capped)]


# Once per batch


def misses(target: Any, instance: Any, forward_batch: Any) -> Missed | None:
    learnt = getattr(instance, LEARNT, None)
    if learnt is None or forward_batch.forward_mode.name not in PLAIN or _of_its_own(instance):
        return None
    cached, new = forward_batch.extend_prefix_lens_cpu, forward_batch.extend_seq_lens_cpu
    if cached is None or new is None:
        return None
    ragged = not _paged(target, instance)
    wrong = ragged_misses(learnt, cached, new) if ragged else paged_misses(learnt, cached, new)
    return Missed(ragged, learnt) if wrong else None


def ragged_misses(learnt: Learnt, cached: Any, new: Any) -> bool:
    """The new tokens see each other without a window; what is cached is planned with tokens that are written later."""
    return any(tokens > learnt.window + 1 for tokens in new) or (not learnt.plans_prefix and any(cached))


def paged_misses(learnt: Learnt, cached: Any, new: Any) -> bool:
    """The plan begins at the window of the first new token, and later ones see as far."""
    if learnt.plans_window:
        return False
    return any(tokens > 1 and before + tokens > learnt.window + 1 for before, tokens in zip(cached, new))


def _of_its_own(backend: Any) -> bool:
    """Multi-item scoring masks by items, diffusion models by blocks; a workspace of dequantised KV is not made for windows."""
    return (
        getattr(backend, "enable_mis", False)
        or getattr(backend, "multi_item_scoring_delimiter", None) is not None
        or getattr(backend, "is_dllm_model", False)
        or getattr(backend, "prefill_uses_dequant_workspace", False)
    )


def _paged(target: Any, backend: Any) -> bool:
    """Whether the engine attends in paged-only mode by itself."""
    if backend.is_multimodal or getattr(backend, "enable_deterministic", False) or getattr(backend, "use_paged", False):
        return True
    names = target.function.__globals__
    in_graph = names.get("is_in_tc_piecewise_cuda_graph") or names.get("is_in_piecewise_cuda_graph")
    return bool(in_graph and in_graph())


def init_forward_metadata(call: Call, instance: Any, forward_batch: Any) -> Any:
    ragged, learnt = call.found
    wrapper = instance.prefill_wrappers_paged[0]
    plan = wrapper.begin_forward
    ours = plan if learnt.plans_window else with_window(plan, learnt.window)
    guarded = call.guard(ours, without_window(plan), plans=True)
    with ExitStack() as stack:
        if ragged:
            stack.enter_context(attribute(instance, switch(instance), True))
        stack.enter_context(attribute(wrapper, "begin_forward", guarded))
        result = call()
    if call.failed:
        return call()  # in the mode that the engine would have taken
    if of_requests(forward_batch):
        call.corrected(len(forward_batch.extend_seq_lens_cpu))
    return result


def switch(backend: Any) -> str:
    """What chooses paged-only prefill: from 0.5.11 on a switch of its own; before, a multimodal model has it."""
    return "use_paged" if hasattr(backend, "use_paged") else "is_multimodal"


def with_window(plan: Callable[..., Any], window: int) -> Callable[..., Any]:
    """FlashInfer takes its kernel with the window's mask by what the plan says; a window at the call is not enough."""

    def begin_forward(*args: Any, **kwargs: Any) -> Any:
        return plan(*args, **{"window_left": window, **kwargs})

    return begin_forward


def without_window(plan: Callable[..., Any]) -> Callable[..., Any]:
    def begin_forward(*args: Any, **kwargs: Any) -> Any:
        return plan(*args, **{name: value for name, value in kwargs.items() if name != "window_left"})

    return begin_forward
