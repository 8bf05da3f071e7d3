"""Corrections of vllm.mla-context-order.

`prefill_tokens_with_context` of a batch's metadata says how many leading prefill tokens have context; the final merge copies
the suffix from there on. None means that every token merges its prefix, which is right in any order as long as the prefix of
tokens without context is neutral: output 0, LSE -inf.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared import empty_rows
from attnfix.patches.vllm.shared.empty_rows import context_leads

#: Entries
SMALL = 64


def build(call: Call, instance: Any) -> Any:
    """After the chunks of a batch are planned: no prefix length where requests with context do not come first.

    From 0.26.0 the target is a function of its own, which the builders of dense and sparse MLA share; it returns the chunked
    context. Before, it is the builder's method, and the chunked context lies in the metadata that it returns.
    """
    result = call()
    prefill = getattr(result, "prefill", None)
    context = result if prefill is None else prefill.chunked_context
    count = getattr(context, "prefill_tokens_with_context", None)
    if count is None or (prefill is not None and count == result.num_actual_tokens - result.num_decode_tokens):
        return result  # no prefill has context, or every token's has
    table = context.seq_lens  # [chunks, requests]. A view of one row costs more than a small table, and less than a large one
    lens = table.tolist()[0] if table.numel() < SMALL else table.numpy()[0].tolist()
    if not context_leads(lens):
        context.prefill_tokens_with_context = None
        call.corrected()
    return result


def merges_requests_without_context(target: Any, instance: Any, attn_metadata: Any) -> bool:
    """Up to 0.25.1 the engine trusts the prefix length to keep the final merge away from tokens without context: what a loop
    leaves there is up to the backend (the TRT-LLM ragged kernel writes nothing) and to the merge (Triton's makes NaN of two
    empty chunks). The engine itself never leaves the length out. From 0.26.0 it neutralises every chunk.
    """
    context = attn_metadata.prefill.chunked_context
    if context.prefill_tokens_with_context is not None or hasattr(context, "has_empty_context"):
        return False
    return empty_rows.some_in(context, 0)


def compute_prefill_context(call: Call, instance: Any, attn_metadata: Any) -> Any:
    """Either context loop; returns (out, lse)."""
    result = call()
    empty_rows.neutralize(result, attn_metadata.prefill, 0)
    return result


def attends_to_requests_without_context(target: Any, instance: Any, prefill_metadata: Any) -> bool:
    """In the context loop of sparse MLA with a mask, of 0.27, the engine makes nothing neutral: it trusts FlashAttention 4 with
    rows whose keys are all masked, and the prefix length with requests that have no keys at all."""
    context = prefill_metadata.chunked_context
    return context.prefill_tokens_with_context is None and empty_rows.some_in(context, 0)


def compute_context_mha(call: Call, instance: Any, prefill_metadata: Any) -> Any:
    """Returns (out, lse)."""
    result = call()
    empty_rows.neutralize(result, prefill_metadata, 0)
    return result
