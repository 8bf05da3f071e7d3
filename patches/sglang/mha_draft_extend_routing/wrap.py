"""Correction of sglang.mha-draft-extend-routing.

`forward_batch` is the fifth argument of `forward_extend(q, k, v, layer, forward_batch, …)`, whose code is known in full
(structure.py): it reads the mode once, to choose the kernel, and writes nothing to the batch; nor do the helpers it hands the
batch to.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from attnfix.compat.fix import NOT_NEEDED


def forward_extend(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """DRAFT_EXTEND_V2 goes to the context kernel, for which its metadata was made; every other mode passes untouched."""
    forward_batch = args[4]
    if not misrouted(forward_batch.forward_mode):
        return NOT_NEEDED
    result = wrapped(*args[:4], as_plain_extend(forward_batch), *args[5:], **kwargs)
    wrapped.corrected()
    return result


def misrouted(mode: Any) -> bool:
    return mode.is_draft_extend_v2()


def as_plain_extend(forward_batch: Any) -> Any:
    """The same batch, tensors shared, under another mode. The caller's own batch keeps its mode: the model, the logits
    processor and the DP post-processing read it between and after the layers."""
    view = copy(forward_batch)
    view.forward_mode = type(forward_batch.forward_mode).EXTEND
    return view
