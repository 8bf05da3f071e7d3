"""Correction of vllm.fa3-cascade."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.rebound import rebound

_CASCADE, _KERNEL = "cascade_attention", "flash_attn_varlen_func"


def leaves_out(target: Any, instance: Any, attn_metadata: Any) -> bool:
    """Whether this is a cascade, of a layer with sinks or with metadata for a number of splits."""
    if attn_metadata is None or not attn_metadata.use_cascade:
        return False
    return sinks(instance) is not None or bool(splits(attn_metadata))


def forward(call: Call, instance: Any, attn_metadata: Any) -> Any:
    """The engine's own code is run, with the name of the kernel bound to one that is told what the caller leaves out.

    A sink counts once: in the first part, the prefix, whose LSE has it then. That part alone is not causal. Where the kernel
    refuses what it is told, it is launched as the engine does.
    """
    function = call.target.function
    cascade = function.__globals__[_CASCADE]
    kernel = cascade.__globals__[_KERNEL]
    first, several = sinks(instance), splits(attn_metadata)

    def told(*, causal: bool, **launch: Any) -> Any:
        if several:
            launch["num_splits"] = several
        if not causal and first is not None:
            launch["s_aux"] = first
        return kernel(causal=causal, **launch)

    result = call.run(rebound(function, **{_CASCADE: rebound(cascade, **{_KERNEL: call.guard(told, kernel)})}))
    call.corrected()
    return result


def sinks(impl: Any) -> Any:
    """float [heads], or None."""
    return getattr(impl, "sinks", None)


def splits(metadata: Any) -> int:
    return metadata.max_num_splits
