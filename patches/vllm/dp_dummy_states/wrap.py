"""Correction of vllm.dp-dummy-states."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def tables_of(target: Any, instance: Any) -> Any:
    """The block tables of Model Runner V1 or V2. Neither is there before the cache is."""
    runner = instance.model_runner
    return getattr(getattr(runner, "input_batch", None), "block_table", None) or getattr(runner, "block_tables", None)


def execute_dummy_batch(call: Call, instance: Any) -> Any:
    """A step with requests writes its own rows and slots anew. Graphs read the same memory, behind these writes on their
    stream; capture, warm-up and profiling do not come by here."""
    runner, tables = instance.model_runner, call.found
    if hasattr(tables, "input_block_tables"):
        own_nothing(tables.input_block_tables, [])
    else:
        first, rows = runner.input_batch.num_reqs, []
        if any(table.num_blocks_per_row[first:].any() for table in tables.block_tables):
            with runner.synchronize_input_prep():  # rows of the host may be on their way to the GPU
                forget(tables, first)
            rows = [table.block_table.gpu[first:] for table in tables.block_tables]
        own_nothing(rows, [table.slot_mapping.gpu for table in tables.block_tables])
    result = call()
    call.corrected()
    return result


def own_nothing(rows: Any, slots: Any) -> None:
    """rows: int32 [requests, blocks] of each group; slots: int64 [tokens]. Block 0 is nobody's, and no kernel writes to slot
    -1."""
    import torch

    with torch.inference_mode():  # from 0.18.0 the engine may have made them in it
        for row in rows:
            row.zero_()
        for slot in slots:
            slot.fill_(-1)


def forget(tables: Any, first: int) -> None:
    """On the host, from where a dummy batch of 0.19.0-0.26.0 copies its rows: those that no request of the batch has."""
    for table in tables.block_tables:
        rows = first + table.num_blocks_per_row[first:].nonzero()[0]
        table.block_table.np[rows] = 0
        table.num_blocks_per_row[rows] = 0
