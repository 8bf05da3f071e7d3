"""Corrections of sglang.skip-seq-lens-sync; the opt-out itself is two class attributes.

A batch whose lengths are not known on the host cannot have its tree mask sized by their sum: a mask of the worst case is
allocated with the CUDA graph's other buffers, and handed out whenever a tree is built.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call

_MASK = "cuda_graph_custom_mask"  # upstream's name for it, since 0.5.13
_OPTED_OUT = {"TRTLLMMLABackend", "TRTLLMMLAMultiStepDraftBackend"}
_SERVED_WITHOUT = {"EAGLE", "EAGLE3"}  # algorithms whose worker knows a batch without the lengths
# Settings under which 0.5.13 itself fails without them: a sum that is None is added to, the lengths are gone through
_READERS = ("enable_multi_layer_eagle", "enable_forward_pass_metrics")


def init_cuda_graph_state(call: Call, instance: Any, max_num_tokens: int) -> Any:
    """Afterwards the backend has a mask if it verifies drafts: bool, max_num_tokens * (max_context_len + num_draft_tokens)."""
    result = call()
    if not _verifies_drafts(instance):
        return result
    import torch

    size = _mask_size(instance, max_num_tokens)
    mask = vars(instance).get(_MASK)
    if mask is None or mask.numel() != size:  # else its address may be in a captured graph
        try:
            setattr(instance, _MASK, torch.zeros(size, dtype=torch.bool, device=instance.device))
        except RuntimeError as error:  # the engine has not decided yet whether it serves without the lengths: it will not
            call.target.give_up(f"no room for a tree mask of {size} bytes: {error}")
            return result
        call.corrected()
    return result


def get_verify_buffers_to_fill_after_draft(call: Call, instance: Any) -> Any:
    """[mask, None]; without a CUDA graph there is no mask, and the engine makes one per batch, of the worst case."""
    buffers = call()
    mask = vars(instance).get(_MASK)
    if mask is None:
        if _verifies_drafts(instance) and instance.decode_cuda_graph_kv_indices is not None:
            raise RuntimeError("no tree mask, though the CUDA graph's buffers were allocated: was the fix armed after them?")
        return buffers
    call.corrected()
    return _buffers(mask)


def decide_needs_cpu_seq_lens(call: Call, instance: Any, server_args: Any, attn_backends: Any) -> bool:
    """The engine's decision; but what would fail without the lengths keeps them, and so does a
    server of unknown settings."""
    needed = call()
    if needed or not any(kind.__name__ in _OPTED_OUT for backend in attn_backends for kind in type(backend).__mro__):
        return needed
    served = getattr(server_args, "speculative_algorithm", None) in _SERVED_WITHOUT
    return not served or any(getattr(server_args, name, True) for name in _READERS)


def _mask_size(backend: Any, max_num_tokens: int) -> int:
    return max_num_tokens * (backend.max_context_len + backend.num_draft_tokens)


def _buffers(mask: Any) -> list:
    """The tree's mask and positions: there is no need for positions at a fixed address."""
    return [mask, None]


def _verifies_drafts(backend: Any) -> bool:
    """Multi-step draft backends skip the prefill: they verify nothing."""
    return bool(backend.num_draft_tokens) and not backend.skip_prefill
