"""Corrections of vllm.prefill-context-merge.

The number of tokens with context is found once per batch, lies with the batch's metadata, and goes to the final merge on the
LSE that the context loop returns: the one object of the loop that reaches the merge as it is (the output may be sliced on the
way). It lives as long as that tensor, belongs to no thread, and is taken off by its one use.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call

_TOKENS = "attnfix_tokens_with_context"


def build(call: Call, instance: Any, common_attn_metadata: Any) -> Any:
    """Note the batch's number of prefill tokens with context."""
    metadata = call()
    prefill = metadata.prefill
    if prefill is None or prefill.chunked_context is None:
        return metadata
    import torch

    if torch.version.hip is None:  # none of our kernels runs there
        starts = common_attn_metadata.query_start_loc_cpu.tolist()[metadata.num_decodes :]
        setattr(prefill, _TOKENS, tokens_with_context(starts, prefill.chunked_context.seq_lens))
    return metadata


def tokens_with_context(starts: list[int], chunk_lens: Any) -> int | None:
    """How many leading tokens belong to requests with context; None where they do not all lead, or where all tokens do.

    starts: where each request's tokens begin, and the last one's end; chunk_lens: int [chunks, requests], on the host. Every
    request with context has some of it in the first chunk.
    """
    count = end = total = 0
    for context, start, stop in zip(chunk_lens[0].tolist(), starts, starts[1:]):
        total = stop - starts[0]
        if context > 0 and start < stop:  # requests without tokens pad the batch
            count, end = count + stop - start, total
    return count if count == end < total else None


def compute_prefill_context(call: Call, instance: Any, attn_metadata: Any) -> Any:
    """Either context loop; returns (out, lse)."""
    result = call()
    setattr(result[1], _TOKENS, getattr(attn_metadata.prefill, _TOKENS, None))
    return result


def has_a_count(target: Any, instance: Any, prefix_lse: Any) -> bool:
    """Of the final merge of MLA prefill, which alone is given that LSE. A count of 0 is one, too."""
    return vars(prefix_lse).get(_TOKENS) is not None


def merge_attn_states(
    call: Call, instance: Any, output: Any, prefix_output: Any, prefix_lse: Any, suffix_output: Any, suffix_lse: Any,
    output_lse: Any = None,
) -> None:  # fmt: skip
    from attnfix.kernels import merge_attn_states

    tokens = vars(prefix_lse).pop(_TOKENS)
    merge_attn_states(
        output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse, prefill_tokens_with_context=tokens
    )
    call.corrected(rows=output.shape[0] - tokens)
