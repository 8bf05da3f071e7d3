"""Correction of sglang.drafter-idle-rank.

A rank without requests runs the draft layers beside the others, for their collectives. The batch of such a rank is empty until
the layer's forward pass pads it, and that pass plans its attention again, or drops the plan of a batch that stays empty.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


def is_idle(target: Any, instance: Any, batch: Any) -> bool:
    """Whether the rank has no request."""
    return batch.forward_mode.is_idle()  # type: ignore[no-any-return]


def draft_extend_for_decode(call: Any, instance: Any) -> Any:
    """`instance.draft_runner_list`: a runner with a backend of its own for each draft layer."""
    backends = {id(one): one for one in (runner.attn_backend for runner in instance.draft_runner_list)}.values()
    skipped: list[None] = []
    for backend in backends:
        backend.init_forward_metadata = partial(plan, backend.init_forward_metadata, skipped)
    try:
        return call()
    finally:
        for backend in backends:
            del backend.init_forward_metadata
        if skipped:
            call.corrected()


def plan(engines: Callable[[Any], None], skipped: list[None], forward_batch: Any) -> None:
    """Plan attention of a batch, unless the batch is empty."""
    if has_requests(forward_batch):
        engines(forward_batch)
    else:
        skipped.append(None)


def has_requests(forward_batch: Any) -> bool:
    """Whether it has any, those of padding among them."""
    return forward_batch.batch_size > 0  # type: ignore[no-any-return]
