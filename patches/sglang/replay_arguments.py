"""The engine's draft-extend replay, whose arguments several corrections read and replace.

Its signature, in all releases that are corrected and part of their digests: `init_forward_metadata_replay_cuda_graph(bs,
req_pool_indices, seq_lens, seq_lens_sum, encoder_lens, forward_mode, spec_info, seq_lens_cpu)`. The graph runner passes
keywords, wrapping backends positions.
"""

from __future__ import annotations

from typing import Any

_AT = {"bs": 0, "seq_lens": 2, "forward_mode": 5, "spec_info": 6}


def of(name: str, args: tuple, kwargs: dict) -> Any:
    at = _AT[name]
    return args[at] if len(args) > at else kwargs[name]


def with_one(name: str, value: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Arguments of which `name` is `value`, all others as they are."""
    at = _AT[name]
    if len(args) > at:
        return (*args[:at], value, *args[at + 1 :]), kwargs
    return args, {**kwargs, name: value}
