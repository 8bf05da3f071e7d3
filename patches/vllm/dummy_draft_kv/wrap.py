"""Correction of vllm.dummy-draft-kv."""

from __future__ import annotations

from typing import Any


def drafts_through_rows(target: Any, instance: Any, dummy_run: bool, skip_attn_for_dummy_run: bool) -> bool:
    """Whether a dummy batch drafts several tokens with attention, and a row of the block table holds what a request had."""
    if not dummy_run or skip_attn_for_dummy_run or instance.num_speculative_steps < 2:
        return False
    return holds_blocks(instance.block_tables)


def drafts_all_through_rows(target: Any, instance: Any, dummy_run: bool, skip_attn_for_dummy_run: bool) -> bool:
    """The same where the first draft has its slots from the rows, too."""
    return dummy_run and not skip_attn_for_dummy_run and holds_blocks(instance.block_tables)


def holds_blocks(tables: Any) -> bool:
    return bool(tables.num_blocks.np.any())  # [groups, rows], on the host: none before the first request


def propose(call: Any, instance: Any, input_batch: Any) -> Any:
    """A graph reads the same memory: what it holds is changed for its launches, on their stream, and put back behind them."""
    changed = [(memory, memory.clone()) for memory in memory_of_slots(instance, input_batch.num_reqs)]
    try:
        for memory, _ in changed:
            memory.zero_()
        result = call()
    finally:
        put_back(changed)
    call.corrected()
    return result


def put_back(changed: list[tuple[Any, Any]]) -> None:
    for memory, former in changed:
        memory.copy_(former)


def memory_of_slots(speculator: Any, rows: int) -> list[Any]:
    """Tensors that make no slot, or slots of the null block, where they are zero.

    From 0.29.0 the kernel asks for each group whether it has slots at all. Before that, the rows' first entries are those of
    the null block: a dummy request is at position 0, and a block holds a token or more.
    """
    tables = speculator.block_tables
    enabled = getattr(tables, "slot_mapping_enabled", None)
    if enabled is not None:
        return [enabled]
    columns = speculator.num_speculative_steps + 1
    return [table.gpu[:rows, :columns] for table in tables.block_tables]
