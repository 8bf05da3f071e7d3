"""Correction of sglang.mamba2-initial-state.

`init_forward_metadata` runs as the engine has it, and `Mamba2Metadata.prepare_mixed`, which it calls, sees a batch without
`mamba_track_mask`. Whoever asks for the mask before or later, to track states for the radix cache, has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from types import FunctionType, SimpleNamespace
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.rebound import rebound

_CLASS, _ARGS = "Mamba2Metadata", "get_global_server_args"


def forgets_a_prefix(target: Any, instance: Any, forward_batch: Any) -> int:
    """How many new tokens stand behind a prefix whose state is not read. Host values alone.

    The scheduler tracks a request that computes a chunk or more: its mask is true, and its state is read.
    """
    if forward_batch.mamba_track_mask is None or forward_batch.extend_num_tokens is None:
        return 0
    cached, new = forward_batch.extend_prefix_lens_cpu, forward_batch.extend_seq_lens_cpu
    if cached is None or new is None:
        return 0
    return rows_behind_a_prefix(cached, new, target.function.__globals__[_ARGS]().mamba_cache_chunk_size)


def init_forward_metadata(call: Call, instance: Any) -> Any:
    result = call.run(reading_every_state(call))
    call.corrected(rows=call.found)
    return result


def rows_behind_a_prefix(cached: Iterable[int], new: Iterable[int], chunk: int) -> int:
    """Tokens of requests that have some cached and compute less than a chunk."""
    return sum(int(tokens) for prefix, tokens in zip(cached, new) if prefix and tokens < chunk)


def reading_every_state(call: Call) -> FunctionType:
    """The engine's `init_forward_metadata`, whose call of `prepare_mixed` hands over a batch that tracks nothing."""
    function = call.target.function
    prepare = function.__globals__[_CLASS].prepare_mixed

    def prepare_mixed(forward_metadata: Any, chunk_size: int, forward_batch: Any) -> Any:
        return prepare(forward_metadata, chunk_size, without_mask(forward_batch))

    return rebound(function, **{_CLASS: SimpleNamespace(prepare_mixed=call.guard(prepare_mixed, prepare))})


def without_mask(forward_batch: Any) -> Any:
    """A view of the batch: all of its tensors, and no mask."""
    view = copy(forward_batch)
    view.mamba_track_mask = None
    return view
