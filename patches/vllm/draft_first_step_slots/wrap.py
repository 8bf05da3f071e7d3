"""Correction of vllm.draft-first-step-slots."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def may_begin_a_prompt(target: Any, instance: Any) -> bool:
    """Whether a request waits, on a server whose drafter writes behind a step's tokens, and without a connector."""
    if not instance.num_lookahead_tokens or instance.connector is not None or not behind(instance):
        return False
    return bool(instance.waiting) or bool(getattr(instance, "skipped_waiting", None))


def behind(scheduler: Any) -> int:
    """Tokens that a drafter writes behind those of a step: one from hidden states, one less than it drafts."""
    return int(scheduler.num_lookahead_tokens) - bool(scheduler.use_eagle)


def schedule(call: Call, instance: Any) -> Any:
    """The engine's own, whose cache manager is asked for the drafts' blocks of a request's first step, too."""
    manager, tokens = instance.kv_cache_manager, behind(instance)
    stock = manager.allocate_slots
    sizes = {group.kv_cache_spec.block_size for group in instance.kv_cache_config.kv_cache_groups}

    def allocate_slots(request: Any, num_new_tokens: int, *args: Any, num_lookahead_tokens: int = 0, **more: Any) -> Any:
        if request.num_computed_tokens or num_lookahead_tokens:
            return stock(request, num_new_tokens, *args, num_lookahead_tokens=num_lookahead_tokens, **more)
        cached = args[0] if args else more.get("num_new_computed_tokens", 0)
        if needs_a_block(cached + num_new_tokens, tokens, sizes):
            num_lookahead_tokens = tokens
            call.corrected(1)
        return stock(request, num_new_tokens, *args, num_lookahead_tokens=num_lookahead_tokens, **more)

    manager.allocate_slots = call.guard(allocate_slots, stock)
    try:
        return call()
    finally:
        del manager.allocate_slots


def needs_a_block(computed: int, drafts: int, sizes: set[int]) -> bool:
    """Whether drafts behind so many tokens end in another block, of any group of layers."""
    return any((computed + drafts - 1) // size > (computed - 1) // size for size in sizes)
