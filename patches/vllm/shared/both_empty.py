"""What the two fixes of a merge of two empty parts share: where the context loops live, and what is done after them.

A request without context is empty in every chunk, so each merge of chunks gives its rows NaN, and nothing else: rows never mix.
Which kernel merges is the engine's entry's choice: the CUDA op on a CUDA platform, else the Triton kernel.
"""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared import empty_rows

COMMON = "vllm.v1.attention.backends.mla.common"  # home of the loops up to 0.14
MLA = "vllm.model_executor.layers.attention.mla_attention"
ENTRIES = ("vllm.v1.attention.ops.merge_attn_states", "vllm.attention.ops.merge_attn_states")
PLAIN = (f"{COMMON}:MLACommonImpl._compute_prefill_context", f"{MLA}:MLACommonImpl._compute_prefill_context")
#: The loop of several ranks; where there is none yet (0.10.0, 0.10.1), the plain one again, which takes a correction once
OF_RANKS = (
    f"{COMMON}:MLACommonImpl._context_parallel_compute_prefill_context",
    f"{MLA}:MLACommonImpl._context_parallel_compute_prefill_context",
    *PLAIN,
)


#: Kept with the plan of a batch, since every layer asks: whose merges leave NaN in it
MERGED_BY = "attnfix_both_empty_merged_by"
CUDA, TRITON, NOBODY = "CUDA", "Triton", ""


def merged_by(context: Any) -> str:
    """The kernel whose merges leave NaN in this batch: looked up by its first layer."""
    kernel = getattr(context, MERGED_BY, None)
    if kernel is None:
        kernel = both_empty_merged_by(context)
        setattr(context, MERGED_BY, kernel)
    return kernel


def neutralize(call: Call, prefill: Any) -> Any:
    """What either loop returns, (out, lse), with rows of requests without context neutral."""
    result = call()
    empty_rows.neutralize(result, prefill, 0)
    call.corrected()
    return result


def both_empty_merged_by(context: Any) -> str:
    """The kernel that merges chunks of a request without context; NOBODY where there is no such request or a single chunk, or
    where the final merge does not read their rows: 0.20.0-0.25.1 tell it how many leading tokens have context."""
    if len(context.seq_tot) <= 1 or not empty_rows.some_in(context, 0):
        return NOBODY
    if getattr(context, "prefill_tokens_with_context", None) is not None and empty_rows.context_leads(
        context.seq_lens[0].tolist()
    ):
        return NOBODY
    entry: Any = next(sys.modules[name] for name in ENTRIES if name in sys.modules)
    return CUDA if entry.current_platform.is_cuda() else TRITON
