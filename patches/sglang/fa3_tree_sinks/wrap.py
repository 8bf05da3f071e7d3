"""Correction of sglang.fa3-tree-sinks.

Trees are attended to in two passes, over what is cached and over the draft tokens, and each kernel's LSE holds the sink. It is
left out of the first: a row of the second pass sees its own key at least, while the first has none where pages are larger than
a token and a request is shorter than its first page. FlashAttention says -inf of a row without keys, with sinks, too.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from attnfix.patches.shared.rebound import rebound

_KERNEL = "flash_attn_with_kvcache"
_NAMES = (_KERNEL, f"{_KERNEL}_fa3", f"{_KERNEL}_fa4")  # the latter two in 0.5.9


def verifies_a_tree(target: Any, instance: Any, forward_batch: Any, sinks: Any = None) -> bool:
    return sinks is not None and forward_batch.forward_mode.is_target_verify() and _in_two_passes(instance)


def drafts_a_tree(target: Any, instance: Any, forward_batch: Any, sinks: Any = None) -> bool:
    return sinks is not None and forward_batch.spec_info is not None and _in_two_passes(instance)


def _in_two_passes(backend: Any) -> bool:
    return backend.topk > 1 and not backend.use_mla and backend.forward_metadata_spec_decode_expand is not None


def forward(call: Any, instance: Any) -> Any:
    """Returns out [tokens, heads * d]."""
    function = call.target.function
    drafts = instance.forward_metadata_spec_decode_expand.page_table
    left_out = []

    def once(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **launch: Any) -> Any:
            if is_first_pass(launch, drafts):
                left_out.append(launch.pop("sinks"))
            return kernel(*args, **launch)

        return run

    kernels = {name: once(function.__globals__[name]) for name in _NAMES if name in function.__globals__}
    if kernels:
        result = call.run(rebound(function, **kernels))
    else:  # 0.5.10: the backend's own
        shown = copy(instance)
        setattr(shown, _KERNEL, once(getattr(instance, _KERNEL)))
        result = call.run(function, shown)
    if left_out:
        call.corrected()
    return result


def is_first_pass(launch: dict[str, Any], drafts: Any) -> bool:
    """Whether a launch is the pass over what is cached: one whose LSE is merged, and not over `drafts`, the draft tokens'
    table of pages."""
    return "sinks" in launch and launch.get("return_softmax_lse", False) and launch["page_table"] is not drafts
