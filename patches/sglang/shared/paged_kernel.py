"""sglang's FlashAttention backend run with launches of its paged kernel changed."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.rebound import rebound

_KERNEL = "flash_attn_with_kvcache"
_NAMES = (_KERNEL, f"{_KERNEL}_fa3", f"{_KERNEL}_fa4")  # the latter two in 0.5.9


def forward(call: Call, instance: Any, change: Callable[[dict[str, Any]], bool]) -> Any:
    """The engine's forward. `change` may change a launch's keywords, and says whether it did: one correction then.

    Returns out [tokens, heads * d].
    """
    function, changed = call.target.function, []

    def shown(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **launch: Any) -> Any:
            changed.append(change(launch))
            return kernel(*args, **launch)

        guarded: Callable[..., Any] = call.guard(run, kernel)
        return guarded

    kernels = {name: shown(function.__globals__[name]) for name in _NAMES if name in function.__globals__}
    if kernels:
        result = call.run(rebound(function, **kernels))
    else:  # 0.5.10: the backend's own
        twin = copy(instance)
        setattr(twin, _KERNEL, shown(getattr(instance, _KERNEL)))
        result = call.run(function, twin)
    if any(changed):
        call.corrected()
    return result


def in_two_passes(backend: Any) -> bool:
    """Whether a batch of trees is attended to in two passes: what is cached, and the draft tokens."""
    return backend.topk > 1 and backend.forward_metadata_spec_decode_expand is not None
