"""Correction of sglang.mamba2-track-tail."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def holds_more(target: Any, instance: Any, forward_batch: Any) -> bool:
    """Whether states are tracked and the backend's buffer has entries of nobody in this batch behind those of the batch."""
    if getattr(forward_batch, "mamba_track_indices", None) is None:
        return False
    buffer = instance.mamba_track_indices_buf
    return buffer is not None and len(buffer) > forward_batch.batch_size


def init_forward_metadata_out_graph(call: Call, instance: Any, forward_batch: Any, in_capture: bool = False) -> Any:
    """The layers take as many entries as the batch has requests, from the end of what the metadata holds."""
    result = call()
    metadata = instance.forward_metadata
    metadata.mamba_track_indices = of_the_batch(metadata.mamba_track_indices, forward_batch.batch_size)
    if not in_capture:
        call.corrected()
    return result


def of_the_batch(indices: Any, size: int) -> Any:
    """A view, for a graph that is captured reads it at every replay: the buffer is filled from its first entry on."""
    return indices[:size]
