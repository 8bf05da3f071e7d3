"""Correction of vllm.swa-admission-crash."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute

_CAP = "_max_admission_blocks_per_request"


def miscounted(
    target: Any, instance: Any, request: Any, num_new_tokens: int, num_new_computed_tokens: int, num_lookahead_tokens: int,
    num_external_computed_tokens: int,
) -> tuple[Any, ...]:  # fmt: skip
    """Managers, each of a group of layers, that would allocate blocks behind their bound, and count none of them."""
    tokens = (
        request.num_computed_tokens + num_new_computed_tokens + num_external_computed_tokens + num_new_tokens
        + num_lookahead_tokens
    )  # fmt: skip
    tokens = min(tokens, instance.max_model_len)
    return tuple(
        manager
        for manager in instance.coordinator.single_type_managers
        if (cap := getattr(manager, _CAP)) is not None
        and tokens > cap * manager.block_size
        and tokens > len(manager.req_to_blocks.get(request.request_id, ())) * manager.block_size
    )


def allocate_slots(call: Call, instance: Any) -> Any:
    """The bound is one of blocks that a request holds at a time. A manager's list has those, too, that a window has freed.

    Where there are blocks enough, the engine takes as many whatever it has counted.
    """
    with ExitStack() as stack:
        for manager in unbound(call.found):
            stack.enter_context(attribute(manager, _CAP, None))
        result = call()
    if result is None:  # the request waits, or another one is preempted
        call.corrected()
    return result


def unbound(managers: tuple[Any, ...]) -> tuple[Any, ...]:
    """Whose bound is to be left out while a step's blocks are counted. Admission, in a function of its own, keeps it."""
    return managers
