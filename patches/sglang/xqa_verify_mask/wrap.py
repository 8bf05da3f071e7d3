"""Correction of sglang.xqa-verify-mask.

FlashInfer's XQA takes the mask of several tokens per request from its caller; TRT-LLM's kernel, behind the same entry point,
masks by itself. For the time of one call that entry point is one that adds the mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute

#: FlashInfer's entry point of both kernels
_KERNEL = "trtllm_batch_decode_with_kv_cache"
#: Where a backend keeps its masks, by tokens per request: CUDA graphs read them where they lay at capture
KEPT = "attnfix_xqa_masks"
#: Steps of drafts without branches, whose metadata has as many tokens for each request
STEPS = frozenset({"TARGET_VERIFY", "DRAFT_EXTEND_V2"})
#: Drafts by EAGLE and MTP. Others may have branches, or attend within a block
CHAINS = frozenset({"EagleVerifyInput", "EagleDraftInput", "EagleDraftExtendInput"})


def lacks_its_mask(target: Any, instance: Any, layer: Any, forward_batch: Any) -> bool:
    return (
        instance.is_xqa_impl
        and forward_batch.forward_mode._name_ in STEPS
        and type(forward_batch.spec_info).__name__ in CHAINS
        and instance.topk <= 1
        and instance.forward_metadata.max_seq_len_q > 1
        and not getattr(instance.forward_metadata, "is_ragged_verify", False)
        and masks_each_token(layer)
    )


def masks_each_token(layer: Any) -> bool:
    """Not where a layer has a window: older releases of FlashInfer take the last token's for all."""
    window = layer.sliding_window_size
    return window is None or window < 0


def forward_extend(call: Call, instance: Any, q: Any) -> Any:
    kernels = call.target.function.__globals__["flashinfer"].decode
    tokens = instance.forward_metadata.max_seq_len_q
    launches: list[int] = []  # a draft extend of older releases takes another kernel
    kernel = getattr(kernels, _KERNEL)
    with attribute(kernels, _KERNEL, call.guard(masked(kernel, mask_of(instance, tokens, q), tokens, launches), kernel)):
        result = call()
    if launches:
        call.corrected()
    return result


def masked(kernel: Callable[..., Any], mask: Any, tokens: int, launches: list[int]) -> Callable[..., Any]:
    """`kernel` with rows of `mask` for the requests of its query; later releases run a batch in several groups."""

    def trtllm_batch_decode_with_kv_cache(*, query: Any, **launch: Any) -> Any:
        launches.append(tokens)
        return kernel(query=query, **{"mask": mask[: query.shape[0] // tokens], **launch})

    return trtllm_batch_decode_with_kv_cache


def mask_of(backend: Any, tokens: int, q: Any) -> Any:
    """The mask for as many requests as `q` has, uint16 [requests, tokens, words]."""
    import torch

    kept, requests = vars(backend).setdefault(KEPT, {}), q.shape[0] // tokens
    mask = kept.get(tokens)
    if mask is None or len(mask) < requests:
        mask = causal(max(requests, backend.req_to_token.shape[0]), tokens, q.device)
        if not (q.is_cuda and torch.cuda.is_current_stream_capturing()):  # memory of a graph is not to be kept
            kept.setdefault(tokens, mask)
    return mask


def causal(requests: int, tokens: int, device: Any) -> Any:
    """A token sees itself and the drafts before it: bit j of a row is set where j <= the row. 16 bits to a word, and as many
    words as whole groups of 32 tokens need."""
    import torch

    words = -(-tokens // 32) * 2
    seen = torch.ones(tokens, words * 16, dtype=torch.int32, device=device).tril().view(tokens, words, 16)
    packed = (seen << torch.arange(16, dtype=torch.int32, device=device)).sum(-1).to(torch.int16)
    return packed.expand(requests, -1, -1).contiguous().view(torch.uint16)
