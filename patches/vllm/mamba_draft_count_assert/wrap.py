"""Correction of vllm.mamba-draft-count-assert."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def holds_more(target: Any, instance: Any, request_id: str, num_tokens_main_model: int) -> bool:
    """Whether the request has more blocks for its state than this step needs. Modes without shared states take it so."""
    if instance.mamba_cache_mode != "align":
        return False
    return needed(instance, num_tokens_main_model) < len(instance.req_to_blocks.get(request_id, ()))


def needed(manager: Any, tokens: int) -> int:
    """Blocks: those of the tokens, drafts of the step included, and one for each draft."""
    return int(-(-tokens // manager.block_size) + manager.num_speculative_blocks)


def allocate_new_blocks(call: Call, instance: Any) -> Any:
    """No new block. Those that the request has stay in their columns: a later step of more tokens needs them again."""
    call.corrected()
    return []
