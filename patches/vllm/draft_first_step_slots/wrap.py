"""Correction of vllm.draft-first-step-slots."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute


def may_begin_a_prompt(target: Any, instance: Any) -> bool:
    """Whether a request waits, on a server whose drafter writes behind a step's tokens, and without a connector."""
    if not instance.num_lookahead_tokens or instance.connector is not None or not behind(instance):
        return False
    return bool(instance.waiting) or bool(getattr(instance, "skipped_waiting", None))


def behind(scheduler: Any) -> int:
    """Tokens that a drafter writes behind those of a step: one from hidden states, one less than it drafts. DFlash writes the
    sampled token and all drafts."""
    drafts = int(scheduler.num_lookahead_tokens)
    if not scheduler.use_eagle:
        return drafts
    return drafts + 1 if scheduler.vllm_config.speculative_config.method == "dflash" else drafts - 1


def schedule(call: Call, instance: Any) -> Any:
    """The engine's own, whose cache manager is asked for the drafts' blocks of a request's first step, too.

    Where nobody runs, nobody gives blocks back: a request that has none left for drafts begins as it does without the fix.
    """
    manager, tokens = instance.kv_cache_manager, behind(instance)
    stock = manager.allocate_slots
    sizes = {group.kv_cache_spec.block_size for group in instance.kv_cache_config.kv_cache_groups}

    def allocate_slots(request: Any, num_new_tokens: int, *args: Any, num_lookahead_tokens: int = 0, **more: Any) -> Any:
        if request.num_computed_tokens or num_lookahead_tokens:
            return stock(request, num_new_tokens, *args, num_lookahead_tokens=num_lookahead_tokens, **more)
        cached = args[0] if args else more.get("num_new_computed_tokens", 0)
        if needs_a_block(cached + num_new_tokens, tokens, sizes):
            blocks = stock(request, num_new_tokens, *args, num_lookahead_tokens=tokens, **more)
            if blocks is not None:
                call.corrected(1)
            if blocks is not None or instance.running:
                return blocks
        return stock(request, num_new_tokens, *args, num_lookahead_tokens=0, **more)

    with attribute(manager, "allocate_slots", call.guard(allocate_slots, stock)):
        return call()


def needs_a_block(computed: int, drafts: int, sizes: set[int]) -> bool:
    """Whether drafts behind so many tokens end in another block, of any group of layers."""
    return any((computed + drafts - 1) // size > (computed - 1) // size for size in sizes)
