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
    return holds_blocks(instance.model_runner.block_tables)


def holds_blocks(tables: Any) -> bool:
    return bool(tables.num_blocks.np.any())  # [groups, rows], on the host: none before the first request


def execute_dummy_batch(call: Any, instance: Any) -> Any:
    """A graph reads the same memory: what it holds is changed for its launches, on their stream, and put back behind them."""
    changed = [(memory, memory.clone()) for memory in memory_of_slots(instance.model_runner)]
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


def memory_of_slots(runner: Any) -> list[Any]:
    """Tensors that make no slot, or slots of the null block, where they are zero.

    From 0.29.0 the kernel asks for each group whether it has slots at all. Before that, the rows' first entries are those of
    the null block: a dummy request is at position 0, and a block holds a token or more.
    """
    tables = runner.block_tables
    enabled = getattr(tables, "slot_mapping_enabled", None)
    if enabled is not None:
        return [enabled]
    columns = runner.speculator.num_speculative_steps + 1
    return [table.gpu[:, :columns] for table in tables.block_tables]
