"""Correction of vllm.dummy-draft-kv."""

from __future__ import annotations

from typing import Any


def drafts_through_rows(target: Any, instance: Any) -> bool:
    """Whether the dummy batch drafts several tokens, and a row of the block table holds what a request has or had.

    Model Runner V1 has no speculator; of V2's ranks of a pipeline the last one has.
    """
    speculator = getattr(instance.model_runner, "speculator", None)
    if speculator is None or getattr(speculator, "num_speculative_steps", 0) < 2:
        return False
    tables = instance.model_runner.block_tables
    return can_do_without(tables) and holds_blocks(tables)


def can_do_without(tables: Any) -> bool:
    """Whether what the kernel of slots reads can be made to give none. Before 0.29.0 a rank of a context parallel group
    adds the token's place in the block, whatever the block's size."""
    return hasattr(tables, "slot_mapping_enabled") or tables.cp_size == 1


def holds_blocks(tables: Any) -> bool:
    return bool(tables.num_blocks.np.any())  # [groups, rows], on the host: none before the first request


def execute_dummy_batch(call: Any, instance: Any) -> Any:
    """A graph reads the same memory: what it holds is changed for its launches, on their stream, and put back behind them."""
    changed = [(memory, memory.clone(), value) for memory, value in without_slots(instance.model_runner)]
    try:
        for memory, _, value in changed:
            memory.fill_(value)
        result = call()
    finally:
        put_back(changed)
    call.corrected()
    return result


def put_back(changed: list[tuple[Any, Any, int]]) -> None:
    for memory, former, _ in changed:
        memory.copy_(former)


def without_slots(runner: Any) -> list[tuple[Any, int]]:
    """Tensors and the value with which the kernel gives each token of a dummy request slot -1: the engine's own for "none".

    From 0.29.0 the kernel asks for each group whether it has slots at all. Before that, a slot is the block's number times
    the size of a block, and the place in it: of blocks of one token, number -1 begins, and ends, at slot -1. A dummy request
    begins at position 0; with blocks of one token, position n reads column n.
    """
    tables = runner.block_tables
    enabled = getattr(tables, "slot_mapping_enabled", None)
    if enabled is not None:
        return [(enabled, 0)]
    columns = 2 * (runner.speculator.num_speculative_steps + 1)
    return [(tables.block_sizes_tensor, 1), *((table.gpu[:, :columns], -1) for table in tables.block_tables)]
