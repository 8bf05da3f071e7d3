"""Correction of vllm.swa-early-free.

`num_computed_tokens` counts the tokens of steps in flight as if all drafts were accepted, and `num_output_placeholders` says
how many tokens of decodes those are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute

#: Attributes of managers whose layers see a part of the tokens. Those of recurrent states allow for drafts by themselves
_WIDTHS = "sliding_window", "attention_chunk_size", "rswa_window"


def frees_early(target: Any, instance: Any, request: Any) -> list[Any]:
    """The managers that would free a block which is read once more if drafts are refused.

    A step in flight without drafts has one placeholder, and its token stays. Two such steps, in a pipeline, keep a block for a
    step that needs it no more.
    """
    ahead = request.num_output_placeholders
    if ahead < 2:
        return []
    computed = request.num_computed_tokens
    return [
        manager
        for manager in instance.coordinator.single_type_managers
        if any(hasattr(manager, name) for name in _WIDTHS)
        and first_kept(manager, request, computed) > first_kept(manager, request, settled(computed, ahead))
    ]


def first_kept(manager: Any, request: Any, computed: int) -> int:
    """The block in which the tokens begin that the next step reads; of R-SWA, those behind the prompt."""
    window = getattr(manager, "rswa_window", None)
    if window is None:
        return int(manager.get_num_skipped_tokens(computed) // manager.block_size)
    return int(max(request.num_prompt_tokens, computed - window) // manager.block_size)


def allocate_slots(call: Call, instance: Any, request: Any) -> Any:
    """Returns the engine's blocks, or None where there are too few. It frees first, and the next step frees the rest.

    For None, the engine takes the blocks of another request. Where no other has any, this one would begin anew for ever.
    """
    with ExitStack() as for_this_call:
        for manager in call.found:
            ours = behind(call, manager.remove_skipped_blocks, request.num_output_placeholders)
            for_this_call.enter_context(attribute(manager, "remove_skipped_blocks", ours))
        result = call()
    if result is None and is_alone(instance.coordinator.single_type_managers, instance.block_pool):
        return call()
    call.corrected()
    return result


def is_alone(managers: list[Any], pool: Any) -> bool:
    """Whether one request has all blocks that are in use. Those of a preempted one may be in use for a step more."""
    if sum(map(bool, managers[0].req_to_blocks.values())) != 1:
        return False
    own = {block.block_id for manager in managers for blocks in manager.req_to_blocks.values() for block in blocks}
    used = pool.num_gpu_blocks - pool.get_num_free_blocks()
    return used <= len(own | {pool.null_block.block_id})


def behind(call: Call, remove: Callable[..., None], ahead: int) -> Callable[..., None]:
    """`remove`, by the count without the tokens in flight."""

    def removed(request_id: str, computed: int, *more: Any, **named: Any) -> None:
        remove(request_id, settled(computed, ahead), *more, **named)

    return call.guard(removed, remove)


def settled(computed: int, ahead: int) -> int:
    return max(0, computed - ahead)
