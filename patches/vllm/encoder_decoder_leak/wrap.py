"""Correction of vllm.encoder-decoder-leak."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call

#: Kept with the manager: outputs that the step before computed
COMPUTED = "attnfix_computed"


def some_are_computed(target: Any, instance: Any) -> bool:
    """Whether this step computes encoder outputs, or the one before has."""
    return bool(instance.freed or getattr(instance, COMPUTED, None))


def get_freed_mm_hashes(call: Call, instance: Any) -> list[str]:
    """A worker drops outputs ahead of those that it computes in the same step. An output is needed in its own step alone."""
    result = a_step_later(instance, call())
    call.corrected()
    return result


def a_step_later(manager: Any, hashes: list[str]) -> list[str]:
    """The hashes of the step before; those of this step are for the next one."""
    before = getattr(manager, COMPUTED, [])
    setattr(manager, COMPUTED, hashes)
    return before
