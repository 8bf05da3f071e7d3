"""Correction of sglang.mixed-chunk-states.

A batch of prompts says which states its forward keeps, where, and of how many tokens. Requests that decode join it, and merging
drops all three. The prompts' part is put back; requests that decode keep no state in such a step.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call

#: Field of the batch -> its value for a request that keeps no state. The last two are lists, of 0.5.21 and later
UNTRACKED = {
    "mamba_track_indices": -1,
    "mamba_track_mask": False,
    "mamba_track_seqlens": -1,
    "mamba_prefill_track_mask_cpu": False,
    "mamba_track_seqlens_cpu": -1,
}


def keeps_states(target: Any, instance: Any, running_batch: Any) -> bool:
    """Whether the server keeps states of prompts in buffers of their own. Values of the host alone."""
    return getattr(instance, "mamba_track_mask", None) is not None


def mix_with_running(call: Call, instance: Any, running_batch: Any) -> Any:
    """Both are a `ScheduleBatch`: prompts, and requests that decode, which become the last rows of the former."""
    more = len(running_batch.reqs)
    kept = {name: behind(getattr(instance, name, None), more, value) for name, value in UNTRACKED.items()}
    tracked = any(keeps_one(request) for request in instance.reqs)
    result = call()
    vars(instance).update((name, value) for name, value in kept.items() if value is not None)
    if tracked:
        call.corrected()
    return result


def keeps_one(request: Any) -> bool:
    """Whether this forward keeps a state of the prompt: its length was set when the batch was prepared."""
    owner = request if hasattr(request, "mamba_last_track_seqlen") else request.kv  # 0.5.19 and later
    return owner.mamba_last_track_seqlen is not None


def behind(field: Any, more: int, value: Any) -> Any:
    """`field`, a tensor [prompts] or a list, with `more` rows behind it that have this value; None of None."""
    if field is None:
        return None
    if isinstance(field, list):
        return field + [value] * more
    import torch

    return torch.cat([field, field.new_full((more,), value)])
