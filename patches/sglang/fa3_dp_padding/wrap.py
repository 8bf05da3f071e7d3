"""Correction of sglang.fa3-dp-padding.

A batch of prompts is padded to a multiple of the ranks that share its attention. Its requests have the first rows, and no
kernel writes the others: the output holds there what was in its memory.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call

#: What releases call the tokens before padding, of 0.5.4 and later
_TOKENS = "num_token_non_padded_cpu", "global_num_token_non_padded_cpu"


def has_padding(target: Any, instance: Any, q: Any, forward_batch: Any) -> int:
    """How many rows of q requests have, where others follow; else 0. By what the host knows of the batch."""
    rows, before = q.shape[0], max(getattr(forward_batch, name, None) or 0 for name in _TOKENS)
    if before >= rows or forward_batch.forward_mode.is_target_verify():  # which plans padded requests
        return 0
    lens = getattr(forward_batch, "extend_seq_lens_cpu", None)
    if lens is None or len(lens) == 0:
        return 0
    used = max(before, int(lens.sum()) if hasattr(lens, "sum") else sum(lens))
    return used if used < rows and not _captured(q) else 0


def _captured(q: Any) -> bool:
    """Whether a graph records these launches, and repeats them for batches of other lengths."""
    import torch

    return bool(q.is_cuda and torch.cuda.is_current_stream_capturing())


def forward_extend(call: Call, instance: Any, q: Any) -> Any:
    """Returns out [tokens, heads * d], or out [tokens, heads, d] and the LSE [tokens, heads]."""
    result = call()
    for part in result if isinstance(result, tuple) else (result,):
        if part.shape[0] == q.shape[0]:
            clear(part, call.found)
    call.corrected()
    return result


def clear(rows: Any, used: int) -> None:
    rows[used:].zero_()
