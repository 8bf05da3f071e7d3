"""Correction of sglang.mamba-verify-clear.

A prompt's batch says which states are cleared or copied from a cached prefix before it runs. It keeps saying so while its
requests decode, and a verification counts as a prompt there.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from attnfix.compat.fix import Call

_CLEARED, _COPIED = "mamba_clear_indices", "mamba_cow_src_indices"


def verifies_with_a_prompts_slots(target: Any, instance: Any, forward_batch: Any) -> bool:
    if not forward_batch.forward_mode.is_target_verify() or instance.is_draft_worker:
        return False
    return forward_batch.mamba_clear_indices is not None or forward_batch.mamba_cow_src_indices is not None


def execute_deferred_mamba_cow_and_clear(call: Call, instance: Any, forward_batch: Any) -> Any:
    """The engine finds nothing to clear or to copy. Nobody else reads these fields of the batch."""
    result = call(forward_batch=without(forward_batch, _CLEARED, _COPIED))
    call.corrected()
    return result


def without(batch: Any, *names: str) -> Any:
    """A view of the batch: all that it has, and none of these."""
    view = copy(batch)
    for name in names:
        setattr(view, name, None)
    return view
