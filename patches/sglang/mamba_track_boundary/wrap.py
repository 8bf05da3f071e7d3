"""Correction of sglang.mamba-track-boundary.

The engine asks after each decode step of a request whether this step has written a tracked state, and reads the answer from
`kv_committed_len`. That belongs to the step that was prepared last, which is the next one where the scheduler overlaps. The
tokens of a request belong to the step that is processed: its last token is this step's, and has no state yet.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attnfix.compat.fix import Call


def asked_a_step_ahead(target: Any, instance: Any, req: Any, batch: Any) -> bool:
    """Whether the next step was prepared already, and one of the two may be at a boundary. Host values alone.

    With extra_buffer_lazy the slot that is kept changes when a step is prepared, and not when its result is processed. There
    only what the engine misses is wrong: a boundary that it has seen a step ahead is claimed with the slot that belongs to it.
    """
    ahead = req.kv_committed_len
    done = len(req.origin_input_ids) + len(req.output_ids) - 1
    if ahead != done + 1 or not instance.enable_overlap:
        return False
    interval = instance.server_args.mamba_track_interval
    if done % interval == 0:
        missed = req.mamba_last_track_seqlen != done or not _lazy(batch)
    else:
        missed = ahead % interval == 0 and not _lazy(batch)
    return missed and batch.spec_algorithm.is_none()


def check_track_boundary(call: Call, instance: Any, req: Any) -> Any:
    """Returns (whether a state was written, how many tokens it has seen)."""
    result = call(req=SimpleNamespace(kv_committed_len=processed(req)))
    call.corrected()
    return result


def processed(req: Any) -> int:
    """Tokens whose state the step has made that is processed now."""
    return int(req.seqlen) - 1


def _lazy(batch: Any) -> bool:
    return bool(getattr(batch.req_to_token_pool, "enable_mamba_extra_buffer_lazy", False))
