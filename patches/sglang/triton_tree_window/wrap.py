"""Correction of sglang.triton-tree-window.

The kernel has a row's window begin by the row's number. In a tree several rows stand at one position, so the window goes into
the custom mask, by depths, and the launch is given a window that no row leaves. Without any, the kernel would read no offset of
the mask's rows: with it, all are of one length.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from attnfix.compat.fix import Call

_KERNEL = "extend_attention_fwd"
#: Places of the kernel's arguments, which the backend hands over without names
_QO_INDPTR, _KV_INDPTR, _MASK, _MASK_INDPTR, _DRAFTS = 6, 7, 9, 11, 12
#: Longer than any context, and an int32 with a row's number
_WIDE = 1 << 30


def verifies_a_tree(target: Any, instance: Any, layer: Any, forward_batch: Any) -> bool:
    """Rows of a chain stand at their numbers. Newer backends know how many branches there are, drafts of EAGLE always."""
    window = layer.sliding_window_size
    return (
        window is not None
        and window > 0
        and forward_batch.forward_mode.is_target_verify()
        and instance.forward_metadata.custom_mask is not None
        and 1 not in (getattr(one, "topk", None) for one in (instance, forward_batch.spec_info))
    )


def forward_extend(call: Call, instance: Any) -> Any:
    """Returns o [tokens, heads * d]."""
    kernel, most, changed = getattr(instance, _KERNEL), instance.sliding_window_size, []

    def by_depths(*args: Any, **launch: Any) -> Any:
        if launch.get("window_kv_offsets") is not None and launch["sliding_window_size"] > 0:
            args = by_mask(args, launch, most)
            changed.append(True)
        return kernel(*args, **launch)

    twin = copy(instance)
    setattr(twin, _KERNEL, call.guard(by_depths, kernel))
    result = call.run(call.target.function, twin)
    if changed:
        call.corrected()
    return result


def by_mask(args: tuple[Any, ...], launch: dict[str, Any], most: int) -> tuple[Any, ...]:
    """The arguments of a launch whose windows are in its mask; `launch`, its keywords, is changed. `most`: how many cached
    tokens of a request the window's list may have."""
    import torch

    requests, drafts = len(args[_QO_INDPTR]) - 1, args[_DRAFTS]
    cached, offsets = args[_KV_INDPTR][: requests + 1].diff(), launch["window_kv_offsets"][:requests]
    given, rows = list(args), torch.arange(drafts, device=cached.device)
    own = args[_MASK_INDPTR][:requests] + offsets + cached  # where the first row's part over the drafts begins
    lines = rows[:, None] * (offsets + cached + drafts)[:, None, None] + rows
    mask = args[_MASK]  # in graphs of a full batch at the context limit, earlier releases have none for the drafts
    seen = mask[(own[:, None, None] + lines).clamp(max=len(mask) - 1)] != 0
    given[_MASK] = window_mask(seen, launch["sliding_window_size"], most)
    given[_MASK_INDPTR] = torch.arange(requests + 1, device=cached.device) * (drafts * (most + drafts))
    launch |= {"skip_prefix_custom_mask": False, "sliding_window_size": _WIDE, "window_kv_offsets": most - cached}
    return tuple(given)


def window_mask(seen: Any, window: int, most: int) -> Any:
    """Which of the last `most` cached tokens, and of the drafts, each draft attends to: bool [requests, drafts, most + drafts].

    seen: its ancestors and itself, bool [requests, drafts, drafts]. Cached tokens stand at -most … -1, drafts at their depth.
    """
    import torch

    depth = seen.sum(-1) - 1
    cached = torch.arange(-most, 0, device=seen.device).expand(len(seen), -1)
    mask = depth[:, :, None] <= torch.cat([cached, depth], 1)[:, None] + window
    mask[..., most:] &= seen
    return mask
