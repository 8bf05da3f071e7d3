"""Correction of sglang.gated-split-views.

A layer may hand the kernels views of one projection as its gates. That of prefill takes the rows of both for neighbours in
memory, that of steps those of the decay: it is told how far rows of the other gate are apart.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def gates_apart(target: Any, instance: Any, a: Any, b: Any) -> bool:
    """Whether rows of a gate do not follow one another. Values of the host alone."""
    return not (a.is_contiguous() and b.is_contiguous())


def with_copies(call: Call, instance: Any, a: Any, b: Any) -> Any:
    """The entry of prefill. a: [tokens, heads], of the decay; b: of what is written."""
    result = call(a=dense(a), b=dense(b))
    call.corrected()
    return result


def decay_apart(target: Any, instance: Any, a: Any) -> bool:
    return not a.is_contiguous()


def with_copy(call: Call, instance: Any, a: Any) -> Any:
    """The entry of steps: of verification, and of Kimi-Linear's decode, whose decay is none of the views."""
    result = call(a=dense(a))
    call.corrected()
    return result


def dense(gate: Any) -> Any:
    return gate.contiguous()
