"""Correction of vllm.mamba-stale-checkpoint.

A worker is told of blocks that its request gets, and not of those that the manager takes back. Its row of blocks says enough:
in the column of a checkpoint stands

- a block that is in no column behind it: it is reserved, the checkpoint's own or one of a draft that was left for it;
- a block that is once more behind it: that of a draft, which has moved, with one draft to the state's column;
- the null block: nothing is reserved, as in a prompt's first chunk, or without drafts.

Behind it there are the state of the chunk's last token and one block for each draft. Columns further on are of nobody, and may
hold blocks of a former request.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call

#: A block that is nobody's
NULL_BLOCK = 0


def keeps_checkpoints(target: Any, instance: Any) -> bool:
    return instance.vllm_config.cache_config.mamba_cache_mode == "align" and has_checkpoints(instance.kv_cache_spec)


def has_checkpoints(spec: Any) -> bool:
    return bool(spec.num_prefill_checkpoint_blocks > 0)


def build(call: Call, instance: Any, m: Any, request_rows: Any) -> Any:
    """Returns the engine's plan, or None where no chunk has a checkpoint.

    Whether a block is reserved is known on the GPU alone, so every plan is masked. It is counted where a chunk ends as chunks
    do that are not the last one of a prompt. The host's copy stays: chunks are cut by it, and a cut changes no result.
    """
    plan = call()
    if plan is None:
        return None
    reserved = is_reserved(
        m.block_table_tensor, plan.request_rows, plan.block_cols, plan.state_indices, drafts_of(instance.kv_cache_spec)
    )
    plan.checkpoint_offsets = plan.checkpoint_offsets.masked_fill(~reserved, 0)
    ends = m.seq_lens_cpu_upper_bound.tolist()
    grid = instance.vllm_config.cache_config.hash_block_size
    if rows := sum(offset > 0 and ends[row] % grid == 0 for row, offset in zip(request_rows, plan.offsets)):
        call.corrected(rows=rows)
    return plan


def drafts_of(spec: Any) -> int:
    """Blocks behind the state's."""
    return int(spec.num_speculative_blocks)


def is_reserved(tables: Any, rows: Any, columns: Any, blocks: Any, drafts: int) -> Any:
    """[rows]: whether the block that a checkpoint is planned in is the checkpoint's own. Nothing waits for the GPU."""
    import torch

    behind = columns[:, None] + torch.arange(1, 2 + drafts, device=columns.device)
    behind.clamp_(max=tables.shape[1] - 1)  # a row without a plan has a column of -1
    again = tables[rows[:, None], behind] == blocks[:, None]
    return (blocks != NULL_BLOCK) & ~again.any(1)
