"""Corrections of vllm.prefill-context-merge.

The number of tokens with context is found once per batch, lies with the batch's metadata, and goes to the final merge on the
LSE that the context loop returns: the one object of the loop that reaches the merge as it is (the output may be sliced on the
way). It lives as long as that tensor, belongs to no thread, and is taken off by its one use.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import NOT_NEEDED

_TOKENS = "attnfix_tokens_with_context"


def build(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`build(common_prefix_len, common_attn_metadata, …)`: note the batch's number of prefill tokens with context."""
    metadata = wrapped(*args, **kwargs)
    prefill = metadata.prefill
    if prefill is None or prefill.chunked_context is None:
        return metadata
    import torch

    if torch.version.hip is None:  # none of our kernels runs there
        starts = args[1].query_start_loc_cpu.tolist()[metadata.num_decodes :]
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


def compute_prefill_context(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """Either context loop, `(q, kv_c_and_k_pe_cache, attn_metadata, …)`; returns (out, lse)."""
    result = wrapped(*args, **kwargs)
    setattr(result[1], _TOKENS, getattr(args[2].prefill, _TOKENS, None))
    return result


def merge_attn_states(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """The final merge of MLA prefill, which alone is given that LSE; every other merge passes."""
    tokens = kwargs["prefix_lse"].__dict__.pop(_TOKENS, None)
    if tokens is None:
        return NOT_NEEDED
    from attnfix.kernels import merge_attn_states

    merge_attn_states(**kwargs, prefill_tokens_with_context=tokens)
    wrapped.corrected(rows=kwargs["output"].shape[0] - tokens)
    return None
