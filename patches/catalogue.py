"""Every fix, in the order in which the corrections of one target run. To add one: write its folder, add one line here.

Empty rows come before the base of the LSE: what a kernel left in rows without KV is neutralised before anything is computed
with it.
"""

from attnfix.patches.sglang import (
    draft_kv_indices,
    lse_log_base,
    mha_draft_extend_routing,
    skip_seq_lens_sync,
    uniform_replay_stride_mla,
    uniform_replay_stride_triton,
    zero_kv_rows,
)
from attnfix.patches.vllm import empty_context_chunks, mla_context_order, prefill_context_merge, skip_context_zero_fill

FIXES = (
    zero_kv_rows.FIX,
    lse_log_base.FIX,
    uniform_replay_stride_mla.FIX,
    uniform_replay_stride_triton.FIX,
    mha_draft_extend_routing.FIX,
    skip_seq_lens_sync.FIX,
    draft_kv_indices.FIX,
    skip_context_zero_fill.FIX,
    empty_context_chunks.FIX,
    mla_context_order.FIX,
    prefill_context_merge.FIX,
)

BY_ID = {fix.id: fix for fix in FIXES}
