"""Corrections of vllm.mamba-prefix-cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attnfix.compat.fix import Call


def starts_within_a_block(
    target: Any, instance: Any, request: Any, num_new_tokens: int, num_new_local_computed_tokens: int = 0,
    num_external_computed_tokens: int = 0,
) -> int:  # fmt: skip
    """How many tokens are left to the end of a block, where a chunk of a prompt begins within one and may run past it.

    Of known tokens alone: a decode step runs past it with a token that is sampled, and drafts, and the runner keeps the state.
    """
    start: int = request.num_computed_tokens + num_new_local_computed_tokens + num_external_computed_tokens
    left = left_in_block(start, instance.cache_config.block_size)
    return left if 0 < left < num_new_tokens and start + left < request.num_tokens else 0


def left_in_block(start: int, size: int) -> int:
    return -start % size


def mamba_block_aligned_split(call: Call, instance: Any) -> int:
    """Returns how many tokens are scheduled: no more than to the end of the block, whose state is then that of its end.

    The chunk is shortened and never put off: no request waits longer than the engine would let it.
    """
    tokens: int = call()
    if tokens <= call.found:
        return tokens
    call.corrected()
    return int(call.found)


def looks_for_states_past_attention(target: Any, instance: Any) -> tuple[int, ...]:
    """The groups of layers with a recurrent state, by index, that are looked up with the margin of EAGLE."""
    groups = instance.attention_groups
    # 0.20.0-0.22.1 have a set of groups; later each group says it, before none has a margin
    drafting = getattr(instance, "eagle_attn_group_indices", None)
    return tuple(
        at
        for at, group in enumerate(groups)
        if type(group[0]).__name__ == "MambaSpec"
        and (at in drafting if drafting is not None else getattr(group, "use_eagle", False))
    )


def find_longest_cache_hit(call: Call, instance: Any) -> Any:
    """Returns (blocks of each group, tokens, …): the engine's own answer, where attention holds as many tokens.

    Else it is asked again, for states up to what attention holds. Looking up changes nothing.
    """
    result = call()
    if attention_holds(instance, *result[:2]):
        return result
    call.corrected()
    with without_margin(instance, call.found):
        return call()


def attention_holds(instance: Any, blocks: Any, tokens: int) -> bool:
    managers = instance.single_type_managers
    return all(
        len(blocks[at]) * managers[at].block_size >= tokens
        for group in instance.attention_groups
        if type(group[0]).__name__ != "MambaSpec"
        for at in group[1]
    )


@contextmanager
def without_margin(instance: Any, found: tuple[int, ...]) -> Iterator[None]:
    """Inside, these groups are looked up for no more tokens than the groups before them have."""
    name = "eagle_attn_group_indices" if hasattr(instance, "eagle_attn_group_indices") else "attention_groups"
    former = getattr(instance, name)
    if name == "attention_groups":
        other: Any = [group._replace(use_eagle=False) if at in found else group for at, group in enumerate(former)]
    else:
        other = former - set(found)
    setattr(instance, name, other)
    try:
        yield
    finally:
        setattr(instance, name, former)
