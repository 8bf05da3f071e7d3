"""Correction of vllm.mrope-draft-slots.

A token's slot follows from its index in the request. Behind an image, its M-RoPE position is another number.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from types import FunctionType, MethodType
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute
from attnfix.patches.shared.rebound import rebound

#: The engine's function for the slots of a draft step, and the methods of a drafter that call it
_STEP = "eagle_step_update_slot_mapping_and_metadata"
_CALLERS = "_update_positions_dependent_metadata", "propose"


def behind_images(target: Any, instance: Any) -> int:
    """How many requests of a batch that gets several drafts have positions that are not the indices of their tokens."""
    drafter = instance.drafter
    if not instance.uses_mrope or instance.num_spec_tokens < 2 or not callers_of_step(drafter):
        return 0
    if getattr(drafter, "needs_extra_input_slots", False):  # of a draft model, the first pass goes by positions, too
        return 0
    requests = instance.requests
    return sum(bool(requests[name].mrope_position_delta) for name in instance.input_batch.req_ids)


def propose_draft_token_ids(call: Call, instance: Any) -> Any:
    """Drafts get the slots of their indices, and keep their positions. Where these are equal, nothing changes."""
    drafter = instance.drafter
    name, function = callers_of_step(drafter)[0]
    with attribute(drafter, name, MethodType(with_indices(call, function), drafter)):
        return call()


def callers_of_step(drafter: Any) -> list[tuple[str, FunctionType]]:
    """The drafter's method that asks for the slots of a draft step, or none."""
    methods = [(name, unwrap(getattr(type(drafter), name))) for name in _CALLERS if hasattr(type(drafter), name)]
    return [found for found in methods if isinstance(found[1], FunctionType) and _STEP in found[1].__code__.co_names]


def with_indices(call: Call, function: FunctionType) -> FunctionType:
    step = function.__globals__[_STEP]
    return rebound(function, **{_STEP: call.guard(by_index(call, step), step)})


def by_index(call: Call, step: Callable[..., None]) -> Callable[..., None]:
    """The engine's step for indices in the place of positions, which go on as the engine has them: 0 beyond the limit."""

    def stepped(*, positions_1d: Any, seq_lens: Any, max_model_len: int, out_clamped_positions: Any, **more: Any) -> None:
        # All that may fail comes before the engine's step, which writes where it reads: it is not to run twice
        index = indices(seq_lens[: len(positions_1d)], positions_1d)
        positions = moved(positions_1d + 1, index + 1, max_model_len)
        step(
            positions_1d=index,
            seq_lens=seq_lens,
            max_model_len=max_model_len,
            out_clamped_positions=out_clamped_positions,
            **more,
        )
        out_clamped_positions.copy_(positions)
        call.corrected(call.found)

    return stepped


def moved(positions: Any, index: Any, limit: int) -> Any:
    """The positions of drafts at these indices, which are 0 beyond the limit."""
    return positions.masked_fill_((index >= limit) | (positions >= limit), 0)


def indices(seq_lens: Any, positions: Any) -> Any:
    """Of the last token of each request."""
    return seq_lens.to(positions.dtype) - 1
