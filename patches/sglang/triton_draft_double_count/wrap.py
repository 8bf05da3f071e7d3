"""Correction of sglang.triton-draft-double-count.

In this mode the engine makes kv_indptr and kv_indices of `seq_lens`, and nothing else. In spec v2 these count the step's
tokens, whose number per request the graph runner leaves on the draft input; the kernel gets their keys and values separately.
Under --enable-multi-layer-eagle the engine does not lay out the queries of the second and later layers as their runner does:
without that, what is cached would be right for rows of other requests.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import NOT_NEEDED
from attnfix.patches.sglang import uniform_replay


def init_forward_metadata_replay_cuda_graph(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(bs, req_pool_indices, seq_lens, seq_lens_sum, encoder_lens, forward_mode, spec_info, …)`: metadata of spec v2's
    draft-extend graph, whose KV is that before the step."""
    bs, seq_lens, mode, spec_info = args[0], args[2], args[5], args[6]
    if not mode.is_draft_extend_v2():
        return NOT_NEEDED
    new = getattr(spec_info, "extend_seq_lens_tensor", None)
    if new is None:
        return NOT_NEEDED
    result = wrapped(*args[:2], cached(seq_lens[:bs], new[:bs]), *args[3:], **kwargs)
    own = instance.speculative_num_steps + 1
    if (stride := uniform_replay.stride(spec_info, own)) != own:
        lay_out(instance.qo_indptr, bs, stride)
    wrapped.corrected(rows=bs)
    return result


def cached(seq_lens: Any, new: Any) -> Any:
    """Tokens before the step, both int tensors [bs]. A padding row has a sequence of one token, and none before the step."""
    return (seq_lens - new).clamp_(min=0).to(seq_lens.dtype)


def lay_out(qo_indptr: Any, bs: int, stride: int) -> None:
    """Queries of `bs` requests, `stride` of each: the first bs + 1 of `qo_indptr`, int32."""
    import torch

    torch.arange(0, bs * stride + 1, stride, out=qo_indptr[: bs + 1])
