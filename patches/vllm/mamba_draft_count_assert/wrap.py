"""Correction of vllm.mamba-draft-count-assert."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def holds_more(target: Any, instance: Any, request_id: str, num_tokens_main_model: int) -> bool:
    """Whether the request has more blocks for its state than this step needs. Modes without shared states take it so.

    Drafts of more than a block move blocks to later columns. A step whose column has none ends the engine, as ever: its state
    would go to the block of padding.
    """
    if instance.mamba_cache_mode != "align":
        return False
    blocks, end = instance.req_to_blocks.get(request_id, ()), needed(instance, num_tokens_main_model)
    if end >= len(blocks):
        return False
    return not any(block.is_null for block in blocks[max(end - 1 - instance.num_speculative_blocks, 0) : end])


def needed(manager: Any, tokens: int) -> int:
    """Blocks: those of the tokens, drafts of the step included, and one for each draft."""
    return int(-(-tokens // manager.block_size) + manager.num_speculative_blocks)


def allocate_new_blocks(call: Call, instance: Any) -> Any:
    """No new block. Those that the request has stay in their columns: a later step of more tokens needs them again."""
    call.corrected()
    return []
