"""Correction of sglang.eagle-swa-verify.

Window layers and full ones have a wrapper each. The one of the window layers is planned as the other: over the whole KV, with
the mask that the drafted tokens came with. FlashInfer's own window, which its kernel adds to a custom mask, then keeps to the
window. It counts a token's rows before it, and in a tree that is more than the tokens which the token follows. There the window
is planned wider by the most that this can be, and what is too much is taken out of the mask.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import lru_cache
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import flashinfer_kernels
from attnfix.patches.sglang.shared.window_layers import alike
from attnfix.patches.shared.attribute import attribute

#: Inputs whose KV is listed from the first token on, whatever part of it is planned; DFlash lists its own from there
FROM_THE_START = frozenset({"EagleVerifyInput", "NgramVerifyInput", "EagleDraftInput", "EagleDraftExtendInput"})
#: A window that no sequence reaches; the engine adds lengths to it in int32
WHOLE = 1 << 30
#: Why a plan is corrected
CAPTURE, BEYOND = "a graph's first plan", "beyond the window"
#: Bytes, as allocators of device memory align
_ALIGNED = 256
#: What an updater knows of its model; where a wrapper keeps the window of its plan, and a backend the mask of its graphs'
#: window layers
_ALIKE, _PLANNED, _MASK = "attnfix_windows_alike", "attnfix_planned_window", "attnfix_window_layers_mask"


def init_updater(call: Call, instance: Any, model_runner: Any, attn_backend: Any) -> Any:
    """One plan serves all window layers: those of a model with windows of several sizes are left alone."""
    result = call()
    if alike(model_runner.model, instance.sliding_window_size):
        needs = kernels(instance, attn_backend, model_runner)
        setattr(instance, _ALIKE, flashinfer_kernels.ready(call.target, needs))
    return result


def kernels(updater: Any, backend: Any, model_runner: Any) -> list[Any]:
    """Those that plans of this deployment ask for: at a graph's capture, whatever lengths come."""
    if not flashinfer_kernels.verifies(model_runner):
        return []
    capped = bool(getattr(updater, flashinfer_kernels.CAP, None))
    return [flashinfer_kernels.of_prefill(updater, backend.prefill_wrappers_verify[0], window=True, soft_cap=capped)]


def misplans(target: Any, instance: Any, prefill_wrappers: Any, spec_info: Any, seq_lens_cpu: Any) -> str | None:
    """Whether the window layers' plan would not be that of their window. A graph keeps the kernel that was planned first, at
    its `CAPTURE`, and may be replayed with any lengths. Up to the window its plans with and without one are the same."""
    known = spec_info is not None and any(kind.__name__ in FROM_THE_START for kind in type(spec_info).__mro__)
    if not known or not getattr(instance, _ALIKE, False):
        return None
    wrapper = prefill_wrappers[0]
    if wrapper.is_cuda_graph_enabled and _PLANNED not in vars(wrapper):
        return CAPTURE
    all_seen = within_window(instance.sliding_window_size, getattr(spec_info, "draft_token_num", 0), seq_lens_cpu)
    return None if all_seen else BEYOND


def within_window(window: int, draft: int, seq_lens_cpu: Any) -> bool:
    """Whether the last token of the longest request sees all tokens. Drafted tokens stand behind those that are counted."""
    if seq_lens_cpu is None or seq_lens_cpu.device.type != "cpu":
        return False
    return int(seq_lens_cpu.max()) + max(draft, 1) - 1 <= window


def update_sliding_window(call: Call, instance: Any, seq_lens: Any, prefill_wrappers: Any, spec_info: Any) -> Any:
    window, wrapper, backend = instance.sliding_window_size, prefill_wrappers[0], instance.attn_backend
    plan = wrapper.begin_forward
    ours = windowed(call.target.state, wrapper, plan, window, spec_info, backend)
    guarded = call.guard(ours, as_it_was(wrapper, plan, backend), plans=True)
    with ExitStack() as stack:
        stack.enter_context(attribute(instance, "sliding_window_size", WHOLE))
        stack.enter_context(attribute(wrapper, "begin_forward", guarded))
        result = call()
    if call.failed:
        return call()  # that plan is over the whole text, without a window
    if call.found == BEYOND:  # a capture's lengths are made up
        call.corrected(len(seq_lens))
    return result


def windowed(state: Any, wrapper: Any, plan: Any, window: int, spec_info: Any, backend: Any) -> Callable[..., Any]:
    """FlashInfer's plan of the window layers, with their window."""

    def begin_forward(qo_indptr: Any, kv_indptr: Any, *rest: Any, custom_mask: Any = None, **kwargs: Any) -> Any:
        behind = rows_behind(spec_info, custom_mask)
        if behind:
            call_with_the_planned_window(state, wrapper)
            keep_its_own_mask(wrapper, backend)
            custom_mask = within(custom_mask, kv_indptr, spec_info.positions, spec_info.draft_token_num, window)
        kwargs |= {"custom_mask": custom_mask, "window_left": window + behind}
        result = plan(qo_indptr, kv_indptr, *rest, **kwargs)
        setattr(wrapper, _PLANNED, window + behind)
        return result

    return begin_forward


def as_it_was(wrapper: Any, plan: Any, backend: Any) -> Callable[..., Any]:
    """`plan`, of a wrapper as the engine made it. A graph that was captured reads the mask of its own, though."""

    def begin_forward(*args: Any, **kwargs: Any) -> Any:
        shared, own = getattr(backend, _MASK, (None, None))
        if vars(wrapper).pop(_PLANNED, None) is None and own is not None and wrapper._custom_mask_buf is own:
            wrapper._custom_mask_buf = shared
        return plan(*args, **kwargs)

    return begin_forward


def rows_behind(spec_info: Any, custom_mask: Any) -> int:
    """By how many rows a drafted token may stand behind the place that it has in the text; none in a chain."""
    chain = custom_mask is None or getattr(spec_info, "topk", None) == 1
    return 0 if chain else spec_info.draft_token_num - 1


def within(mask: Any, kv_indptr: Any, positions: Any, draft: int, window: int) -> Any:
    """`mask` without the keys that FlashInfer's wider window leaves in, though they are outside of `window`.

    mask: flat bool, `draft` rows of each request, a column for each of its tokens, the drafted ones last. kv_indptr: int32
    [requests + 1]. positions: places in the text, int [drafted tokens of all requests but padding ones], or None.
    """
    import torch

    count = 0 if positions is None else min(positions.numel() // draft, kv_indptr.numel() - 1)
    if not count:
        return mask
    row, behind, key = _columns(draft, window, mask.device)
    begin = kv_indptr[: count + 1, None, None]
    kv = begin.diff(dim=0)
    place = positions[: count * draft].view(count, draft, 1)
    key = key + kv
    outside = (behind < place - place[:, :1]).logical_and_(key >= 0)
    spare = mask.numel()
    found = mask.new_empty(spare + 1)
    found[:spare].copy_(mask)
    at = torch.add(key.addcmul_(kv, row), begin[:-1], alpha=draft)
    return found.index_fill_(0, torch.where(outside, at, spare).flatten(), False)[:spare]


@lru_cache(maxsize=8)
def _columns(draft: int, window: int, device: Any) -> tuple[Any, Any, Any]:
    """What is the same in each verification, as it takes a launch each, int64: the rows [draft, 1]; of the keys that the wider
    window leaves in, [draft, draft - 1], how far behind its last row a token stands that has such a key outside of its window,
    and where the key is, from the end of the text."""
    import torch

    row = torch.arange(draft, device=device)[:, None]
    # The first key that the wider window leaves in stands `window + draft - 1` before the row's own
    behind = row + torch.arange(draft - 1, device=device) + 1 - draft
    return row, behind, behind - draft - window


def call_with_the_planned_window(state: Any, wrapper: Any) -> None:
    """The engine calls with the layer's window, and FlashInfer needs that of the plan. Verification alone uses this wrapper."""
    if "forward" in vars(wrapper):
        return
    call = wrapper.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if state.armed and "window_left" in kwargs:
            kwargs["window_left"] = getattr(wrapper, _PLANNED, kwargs["window_left"])
        return call(*args, **kwargs)

    wrapper.forward = forward


def keep_its_own_mask(wrapper: Any, backend: Any) -> None:
    """In CUDA graphs both wrappers have one buffer for their masks, packed: the last plan's mask would hold for both. It has a
    byte for each key of each token, of which a bit is used: the second half is free."""
    shared = getattr(backend, "cuda_graph_custom_mask", None)
    if shared is None or wrapper._custom_mask_buf is not shared:
        return
    beside, own = getattr(backend, _MASK, (None, None))
    if beside is not shared:
        own = shared[shared.numel() // 2 & -_ALIGNED :]
        setattr(backend, _MASK, (shared, own))
    wrapper._custom_mask_buf = own
