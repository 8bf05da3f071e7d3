"""Corrections of vllm.dcp-fa2-split: who counts says what is not counted, and who reads the cache counts it.

The counts of the metadata stay as they are. They make the engine split the step, and its call for a whole step may not have
requests without keys: over pages and without splits of the keys, FlashAttention 2 writes their LSE of +inf where queries padded
to the longest would have it, over the LSE of others or past its memory (`compute_attn_1rowblock_splitkv` in
`flash_fwd_kernel.h`; vllm-project/flash-attention PR 139). Among the requests that are counted anew are new prompts, and ranks
that hold none of a short context. So each of them has one key for the kernel, and what it found there is replaced.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from attnfix.compat.fix import Call

_COVERED = "attnfix_covered"


class Covered(NamedTuple):
    """What stands behind the decodes, up to the last request with a context."""

    requests: int
    tokens: int


def on_flash_attention_2(target: Any, instance: Any, common_attn_metadata: Any) -> bool:
    """Whether this builder's layers may split the step. Other versions of the kernel take all of a step at once."""
    if instance.dcp_world_size == 1 or common_attn_metadata.max_query_len <= 1:
        return False
    layers = instance.vllm_config.compilation_config.static_forward_context
    return getattr(layers[instance.layer_names[0]].impl, "vllm_flash_attn_version", None) == 2


def build(call: Call, instance: Any, common_attn_metadata: Any) -> Any:
    """Returns FlashAttentionMetadata, whose lengths say what they cover where the counts leave out a context.

    All is decided from `query_start_loc_cpu`, int32 [requests + 1], and `seq_lens_cpu_upper_bound`, int32 [requests], on the
    host. They are the same on all ranks. New prompts behind the last context stay out, as in a batch in order.
    """
    metadata = call()
    lens, starts = common_attn_metadata.seq_lens_cpu_upper_bound, common_attn_metadata.query_start_loc_cpu
    if lens is None:  # all are counted
        return metadata
    covered, decodes = with_context(starts, lens), metadata.num_decode_reqs
    if covered > decodes + metadata.num_prefill_reqs:
        tokens = int(starts[covered]) - metadata.num_decode_tokens
        setattr(metadata.dcp_context_kv_lens, _COVERED, Covered(covered - decodes, tokens))
    return metadata


def with_context(starts: Any, lens: Any) -> int:
    """How many requests there are up to the last that has new tokens, and tokens before them. Padded ones have no new ones."""
    new = starts.diff()
    found = ((new > 0) & (lens[: len(new)] > new)).nonzero()
    return int(found[-1]) + 1 if len(found) else 0


def leaves_out_contexts(target: Any, instance: Any, dcp_context_kv_lens: Any) -> Covered | None:
    return getattr(dcp_context_kv_lens, _COVERED, None)


def run_split(call: Call, instance: Any, dcp_context_kv_lens: Any, cu_seqlens_q: Any) -> Any:
    """Returns (out [tokens, heads, d], lse [heads, tokens] float32); lens: int32 [requests], of this rank."""
    from attnfix.kernels import fixup_zero_kv_rows

    requests, tokens = call.found
    out, lse = call(
        dcp_context_kv_lens=with_a_key(dcp_context_kv_lens),
        num_context_prefill_reqs=requests,
        num_context_prefill_tokens=tokens,
    )
    fixup_zero_kv_rows(out, lse.t(), dcp_context_kv_lens, cu_seqlens_q)
    call.corrected()
    return out, lse


def with_a_key(lens: Any) -> Any:
    """The first page of a request's row is its own, so that key may be read, whatever it holds."""
    return lens.clamp(min=1)
