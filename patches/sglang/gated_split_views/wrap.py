"""Correction of sglang.gated-split-views.

A layer may hand the kernels views of one projection as its gates. The kernels take their rows for neighbours in memory.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def gates_apart(target: Any, instance: Any, a: Any, b: Any) -> bool:
    """Whether rows of a gate do not follow one another. Values of the host alone."""
    return not (a.is_contiguous() and b.is_contiguous())


def with_copies(call: Call, instance: Any, a: Any, b: Any) -> Any:
    """Both kernels' entries, of prefill and of steps. a: [tokens, heads], of the decay; b: of what is written."""
    result = call(a=dense(a), b=dense(b))
    call.corrected()
    return result


def dense(gate: Any) -> Any:
    return gate.contiguous()
