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

#: The engine's function for the slots of a draft step, from 0.18.0, and the methods of a drafter that call it
_STEP = "eagle_step_update_slot_mapping_and_metadata"
_CALLERS = "_update_positions_dependent_metadata", "propose"
_NO_SLOT = -1


def step_behind_images(target: Any, instance: Any) -> int:
    """`behind_images` of a runner whose drafter asks for its slots."""
    return behind_images(instance) if instance.uses_mrope and callers_of_step(instance.drafter) else 0


def loop_behind_images(target: Any, instance: Any) -> int:
    """`behind_images` of a drafter that finds its slots by itself."""
    return 0 if callers_of_step(instance) else behind_images(instance.runner)


def behind_images(runner: Any) -> int:
    """How many requests of a batch that gets several drafts have positions that are not the indices of their tokens."""
    if not runner.uses_mrope or runner.num_spec_tokens < 2:
        return 0
    requests = runner.requests
    return sum(bool(requests[name].mrope_position_delta) for name in runner.input_batch.req_ids)


def propose_draft_token_ids(call: Call, instance: Any) -> Any:
    """Drafts get the slots of their indices, and keep their positions. Where these are equal, nothing changes."""
    drafter = instance.drafter
    name, function = callers_of_step(drafter)[0]
    with attribute(drafter, name, MethodType(with_indices(call, function), drafter)):
        return call()


def propose(
    call: Call, instance: Any, common_attn_metadata: Any, last_token_indices: Any = None, token_indices_to_sample: Any = None
) -> Any:
    """The same up to 0.17.1."""
    last = token_indices_to_sample if last_token_indices is None else last_token_indices
    after = corrected_slots(call, instance, common_attn_metadata, last_indices(common_attn_metadata, last))
    with attribute(instance, "_set_positions", call.watch(instance._set_positions, after)):
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
        positions = positions_1d + 1  # a copy: the engine's step may write where it reads
        step(
            positions_1d=indices(seq_lens[: len(positions)], positions),
            seq_lens=seq_lens,
            max_model_len=max_model_len,
            out_clamped_positions=out_clamped_positions,
            **more,
        )
        out_clamped_positions.copy_(moved(positions, out_clamped_positions, max_model_len))
        call.corrected(call.found)

    return stepped


def moved(positions: Any, index: Any, limit: int) -> Any:
    """The positions of drafts at these indices, which are 0 beyond the limit."""
    return positions.masked_fill_((index == 0) | (positions >= limit), 0)


def indices(seq_lens: Any, positions: Any) -> Any:
    """Of the last token of each request."""
    return seq_lens.to(positions.dtype) - 1


def last_indices(metadata: Any, last: Any) -> Any:
    """The same before the first draft, int64 [requests]. last: places in the batch; up to 0.13.0, lengths count tokens that
    were rejected."""
    return (metadata.seq_lens - (1 if last is None else metadata.query_start_loc[1:] - last)).long()


def corrected_slots(call: Call, drafter: Any, metadata: Any, index: Any) -> Callable[..., None]:
    """Called when the positions of a pass are set: behind its metadata, which has the same slots, and before its model."""
    of_prompt = metadata.slot_mapping

    def after(*_: Any) -> None:
        if metadata.slot_mapping is of_prompt:  # the first pass
            return
        index.add_(1)
        place(drafter, metadata, index)
        call.corrected(call.found)

    return after


def place(drafter: Any, metadata: Any, index: Any) -> None:
    """Slots of the drafts at these indices, in the place of those that the engine found; none is left out."""
    slots, size, table = metadata.slot_mapping, block_size(drafter), metadata.block_table_tensor
    columns = (index // size).clamp_(max=table.shape[1] - 1)
    right = table.gather(1, columns.view(-1, 1)).view(-1) * size + index % size
    beyond = (slots == _NO_SLOT) | (index >= drafter.max_model_len)
    slots.copy_(right.masked_fill_(beyond, _NO_SLOT))


def block_size(drafter: Any) -> int:
    """As the engine's function takes it: 0.11.1-0.13.0, 0.17, 0.14.0-0.16.0."""
    if hasattr(drafter, "block_size"):
        return drafter.block_size
    if groups := getattr(drafter, "draft_attn_groups", None):
        return groups[0].kv_cache_spec.block_size
    return (drafter.attn_metadata_builder or drafter._get_attention_metadata_builder()).kv_cache_spec.block_size
