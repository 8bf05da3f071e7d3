"""Correction of sglang.triton-draft-double-count.

In this mode the engine makes kv_indptr and kv_indices of `seq_lens`, and nothing else. In spec v2 these count the step's
tokens, whose number per request the graph runner leaves on the draft input; the kernel gets their keys and values separately.
Under --enable-multi-layer-eagle the engine does not lay out the queries of the second and later layers as their runner does:
without that, what is cached would be right for rows of other requests.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import uniform_replay


def counts_its_own_tokens(target: Any, instance: Any, forward_mode: Any, spec_info: Any) -> bool:
    return forward_mode.is_draft_extend_v2() and getattr(spec_info, "extend_seq_lens_tensor", None) is not None


def init_forward_metadata_replay_cuda_graph(call: Call, instance: Any, bs: int, seq_lens: Any, spec_info: Any) -> Any:
    """Metadata of spec v2's draft-extend graph, whose KV is that before the step."""
    result = call(seq_lens=cached(seq_lens[:bs], spec_info.extend_seq_lens_tensor[:bs]))
    own = instance.speculative_num_steps + 1
    if (stride := uniform_replay.stride(spec_info, own)) != own:
        lay_out(instance.qo_indptr, bs, stride)
    call.corrected(rows=bs)
    return result


def cached(seq_lens: Any, new: Any) -> Any:
    """Tokens before the step, both int tensors [bs]. A padding row has a sequence of one token, and none before the step."""
    return (seq_lens - new).clamp_(min=0).to(seq_lens.dtype)


def lay_out(qo_indptr: Any, bs: int, stride: int) -> None:
    """Queries of `bs` requests, `stride` of each: the first bs + 1 of `qo_indptr`, int32."""
    import torch

    torch.arange(0, bs * stride + 1, stride, out=qo_indptr[: bs + 1])
