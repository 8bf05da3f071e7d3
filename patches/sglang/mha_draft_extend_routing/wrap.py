"""Correction of sglang.mha-draft-extend-routing.

The ledger has the whole class of `forward_extend`: it reads the mode of `forward_batch` once, to choose the kernel, and writes
nothing to the batch; nor do the helpers it hands the batch to.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from attnfix.compat.fix import Call


def is_misrouted(target: Any, instance: Any, forward_batch: Any) -> bool:
    return misrouted(forward_batch.forward_mode)


def forward_extend(call: Call, instance: Any, forward_batch: Any) -> Any:
    """DRAFT_EXTEND_V2 goes to the context kernel, for which its metadata was made; every other mode passes untouched."""
    result = call(forward_batch=as_plain_extend(forward_batch))
    call.corrected()
    return result


def misrouted(mode: Any) -> bool:
    return mode.is_draft_extend_v2()


def as_plain_extend(forward_batch: Any) -> Any:
    """The same batch, tensors shared, under another mode. The caller's own batch keeps its mode: the model, the logits
    processor and the DP post-processing read it between and after the layers."""
    view = copy(forward_batch)
    view.forward_mode = type(forward_batch.forward_mode).EXTEND
    return view
