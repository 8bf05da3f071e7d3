"""Correction of sglang.gdn-page-grid.

The kernels of linear attention keep a state for every 64 tokens of each prompt. The radix cache wants the one behind the last
whole page. The engine numbers it as if the kernel kept one per page: with larger pages it takes an earlier one.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared.tracked_states import chunk_of_the_cache, on_host

#: Tokens between two states that the kernels keep
CHUNK = 64
#: The backends that have such kernels. Those of NPUs are others
_LINEAR = "sglang.srt.layers.attention.linear"
_BACKENDS = {(f"{_LINEAR}.{name}_backend", f"{name.upper()}AttnBackend") for name in ("gdn", "kda")}


def counts_pages(target: Any, instance: Any, forward_batch: Any) -> int:
    """The tokens of a page, if the engine takes it for the distance of the kernel's states. Host values alone.

    FlashInfer's kernel keeps one per page. Its plan looks them up by itself.
    """
    kind = type(instance)
    if (kind.__module__, kind.__name__) not in _BACKENDS:
        return 0
    if getattr(instance.kernel_dispatcher, "extend_uses_state_checkpoints", False):
        return 0
    page = chunk_of_the_cache(target.function.__globals__) or 0
    return page if page > CHUNK and page % CHUNK == 0 else 0


def init_track_ssm_indices(call: Call, instance: Any, mamba_cache_indices: Any, forward_batch: Any) -> Any:
    """(of which of the kernel's states, to which slots, of which slots, to which slots).

    The engine waits for the GPU to read these tensors. It gets copies that are read already, so that it waits once.
    """
    batch = on_host(forward_batch)
    result = call(mamba_cache_indices=mamba_cache_indices.cpu(), forward_batch=batch)
    source = sources(batch, call.found)
    if not len(source) or len(source) != len(result[0]):
        return result
    call.corrected(rows=len(source))
    return (source.to(device=instance.device, dtype=result[0].dtype, non_blocking=True), *result[1:])


def sources(batch: Any, page: int) -> Any:
    """For all requests whose state is not their last one: which of the kernel's states is that behind their last whole page."""
    kept = (batch.extend_seq_lens - 1) // CHUNK + 1
    wanted = batch.mamba_track_seqlens - batch.extend_prefix_lens
    rows = batch.mamba_track_mask & (wanted % page != 0)
    return (kept.cumsum(0) - kept)[rows] + wanted[rows] // page * (page // CHUNK)
