"""Correction of sglang.mamba2-h-grid.

The state of a request is wanted behind its last whole chunk. The scan keeps the states with which the chunks of the batch
begin. `init_track_ssm_indices` names those by their positions in the batch. For a state that lies between two of them, it names
one that lies inside of the same request, which nobody else asks for. `scan` puts the wanted state there when the scan itself
has no more use for it: the engine's own kernel for the last states of requests computes it, from what the scan holds then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared.tracked_states import chunk_of_the_cache, on_host
from attnfix.patches.shared.rebound import rebound

_CLASS, _BETWEEN = "Mamba2AttnBackend", "_attnfix_states_between_chunks"


class Between(NamedTuple):
    """States with which no chunk of the batch begins, as tensors on the device.

    bounds: [2 * n], of each the first token of its request and the token behind it, in the batch; homes: [n], where the scan's
    states give way to them.
    """

    bounds: Any
    homes: Any


def may_miss(target: Any, instance: Any, forward_batch: Any) -> bool:
    """Whether the engine may take another state than the one that is wanted. Host values alone.

    Backends of other layers count in a way that is right for these; an heir may have kernels of its own.
    """
    names, new = target.function.__globals__, forward_batch.extend_seq_lens_cpu
    if type(instance) is not names[_CLASS] or new is None:
        return False
    chunk = instance.mamba_chunk_size
    return misses(new, chunk) and chunk_of_the_cache(names) == chunk  # with larger pages the engine counts and tracks by these


def misses(new: Iterable[int], chunk: int) -> bool:
    """The engine counts the whole chunks of the requests before: right as long as these consist of whole chunks."""
    ragged = False
    for tokens in new:
        if ragged and tokens >= chunk:
            return True
        ragged = ragged or tokens % chunk != 0
    return False


def init_track_ssm_indices(call: Call, instance: Any, mamba_cache_indices: Any, forward_batch: Any) -> Any:
    """(of which of the scan's states, to which slots, of which slots, to which slots).

    The engine waits for the GPU to read these tensors. It gets copies that are read already, so that it waits once.
    """
    batch = on_host(forward_batch)
    result = call(mamba_cache_indices=mamba_cache_indices.cpu(), forward_batch=batch)
    source, between, rows = sources(batch, instance.mamba_chunk_size)
    if not rows or len(source) != len(result[0]):
        return result
    source = source.to(instance.device, non_blocking=True)
    if between:
        setattr(source, _BETWEEN, Between(*(tensor.to(instance.device, non_blocking=True) for tensor in between)))
    call.corrected(rows=rows)
    return (source, *result[1:])


def sources(batch: Any, chunk: int) -> tuple[Any, Between | None, int]:
    """For all requests whose state is not their last one: which of the scan's states to take, those that are to be computed,
    and how many the engine would take from elsewhere."""
    import torch

    new = batch.extend_seq_lens.long()
    begins, counted = new.cumsum(0) - new, (new // chunk).cumsum(0) - new // chunk
    wanted = batch.mamba_track_seqlens - batch.extend_prefix_lens
    requests = (batch.mamba_track_mask & (wanted % chunk != 0)).nonzero()[:, 0]
    begins, chunks = begins[requests], wanted[requests] // chunk
    if not bool((chunks > 0).all()):  # the scheduler tracks no state before the first chunk
        return None, None, 0
    ends = begins + chunks * chunk
    off, inside = ends % chunk != 0, (begins + chunk - 1) // chunk
    source = torch.where(off, inside, ends // chunk)
    rows = int((off | (source != counted[requests] + chunks)).sum())
    if not bool(off.any()):
        return source, None, rows
    bounds = torch.stack([begins[off], ends[off]], 1).flatten().int()
    return source, Between(bounds, inside[off]), rows


def tracks_several(target: Any, instance: Any, forward_batch: Any) -> bool:
    new = forward_batch.extend_seq_lens_cpu
    return forward_batch.mamba_track_mask is not None and new is not None and len(new) > 1


def init_forward_metadata(call: Call, instance: Any) -> Any:
    """The scan is not handed the indices: what it needs goes with the only tensor that it gets as it was made here."""
    result = call()
    metadata = instance.forward_metadata
    between = getattr(metadata.track_ssm_h_src, _BETWEEN, None)
    if between is not None:
        setattr(metadata.mixed_metadata.seq_idx, _BETWEEN, between)
    return result


def states_are_missing(target: Any, instance: Any, seq_idx: Any = None) -> Between | None:
    return getattr(seq_idx, _BETWEEN, None)


def scan(call: Call, instance: Any) -> Any:
    """Returns (out, dt, dA_cumsum, states, final states, last states of the requests)."""
    between, found = call.found, []
    kernel = call.target.function.__globals__["chunk_state_varlen"]

    def again(last: Any, B: Any, x: Any, dt: Any, dA_cumsum: Any, cu_seqlens: Any, chunk_states: Any, **more: Any) -> None:
        found.append(states_between(kernel, between.bounds, B, x, dt, dA_cumsum, chunk_states))

    result = call.run(rebound(call.target.function, chunk_state_varlen=call.watch(kernel, again)))
    if found:
        result[3][0, between.homes] = found[0]
    return result


def states_between(kernel: Any, bounds: Any, *scanned: Any) -> Any:
    """The kernel takes neighbours of a list as the bounds of a request: every other one of its states is of no request.

    The state at the first token is not asked for: it lies in an earlier chunk, and the scan has passed it on.
    """
    B, x, dt, dA_cumsum, chunk_states = scanned
    return kernel(B, x, dt, dA_cumsum, bounds, chunk_states)[::2]
