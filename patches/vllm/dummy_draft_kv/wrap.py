"""Correction of vllm.dummy-draft-kv."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def drafts_through_rows(target: Any, instance: Any) -> bool:
    """Whether the dummy batch drafts several tokens, and a row of the block table holds what a request has or had.

    Model Runner V1 has no speculator; of V2's ranks of a pipeline the last one has.
    """
    speculator = getattr(instance.model_runner, "speculator", None)
    if speculator is None or getattr(speculator, "num_speculative_steps", 0) < 2:
        return False
    tables = instance.model_runner.block_tables
    return hasattr(tables, "slot_mapping_enabled") and holds_blocks(tables)


def holds_blocks(tables: Any) -> bool:
    return bool(tables.num_blocks.np.any())  # [groups, rows], on the host: none before the first request


def execute_dummy_batch(call: Call, instance: Any) -> Any:
    """The kernel of slots asks for each group of the cache whether it has slots at all. A graph reads the same memory: it is
    changed for its launches, on their stream, and put back behind them."""
    enabled = instance.model_runner.block_tables.slot_mapping_enabled
    former = enabled.clone()
    try:
        switch_off(enabled)
        result = call()
    finally:
        put_back(enabled, former)
    call.corrected()
    return result


def switch_off(enabled: Any) -> None:
    enabled.fill_(0)


def put_back(enabled: Any, former: Any) -> None:
    enabled.copy_(former)
