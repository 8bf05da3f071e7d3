"""Correction of vllm.image-split: where the scheduler ends the step of a request, in tokens of its prompt.

An image is what the engine calls a feature: its `mm_position` has an `offset` and a `length`, and its `identifier` names what
the encoder makes of it.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call

#: Steps that a request waits in all; then its images are split. Where others are let past it, as in 0.33, nothing else ends it
PATIENCE = 512
_WAITED = "_attnfix_waited"


def ends_within(target: Any, instance: Any, request: Any, num_computed_tokens: int, num_new_tokens: int) -> Any:
    """The image in which the step would end, where another end is right and keeps no request waiting for ever."""
    if num_new_tokens < 1 or num_computed_tokens >= request.num_prompt_tokens or not attends_both_ways(instance):
        return None
    image = image_at(request.mm_features, num_computed_tokens + num_new_tokens)
    if image is None:
        return None
    first, length = image.mm_position.offset, image.mm_position.length
    if first + length - max(first, num_computed_tokens) > longest(instance):
        return None
    ours = not engine_ends(instance, request, image) if first > num_computed_tokens else may_wait(instance.running, request)
    return image if ours else None


def try_schedule_encoder_inputs(call: Call, instance: Any, request: Any, num_computed_tokens: int) -> Any:
    """End the step before the image. A request whose step begins with it, or within it, waits for a later step."""
    tokens = before(call.found, num_computed_tokens)
    if not tokens:
        setattr(request, _WAITED, getattr(request, _WAITED, 0) + 1)
    call.corrected()
    return call(num_new_tokens=tokens)


def before(image: Any, computed: int) -> int:
    return max(0, int(image.mm_position.offset) - computed)


def attends_both_ways(scheduler: Any) -> bool:
    return bool(scheduler.vllm_config.model_config.is_mm_prefix_lm)


def image_at(images: Any, end: int) -> Any:
    """The image that has tokens on both sides of `end`."""
    return next((one for one in images if (at := one.mm_position).offset < end < at.offset + at.length), None)


def longest(scheduler: Any) -> int:
    """The most tokens that a request has in any step. A rest of an image that is longer is split wherever it waits."""
    limit = scheduler.scheduler_config.long_prefill_token_threshold
    return int(min(scheduler.max_num_scheduled_tokens, limit) if limit > 0 else scheduler.max_num_scheduled_tokens)


def engine_ends(scheduler: Any, request: Any, image: Any) -> bool:
    """Whether the engine itself ends the step before an image that begins within the step.

    It does where `disable_chunked_mm_input` is set, as on NVIDIA for such models. Up to 0.31 it does not for an image that is
    in the encoder's cache, or that the prompt has had before.
    """
    if not scheduler.scheduler_config.disable_chunked_mm_input:
        return False
    same = next(one for one in request.mm_features if one.identifier == image.identifier)
    return same is image and image.identifier not in getattr(scheduler.encoder_cache_manager, "cached", ())


def may_wait(running: list[Any], request: Any) -> bool:
    """Whether others take tokens of the step first, for whose end the request can wait. The first has all tokens."""
    return bool(running) and running[0] is not request and getattr(request, _WAITED, 0) < PATIENCE
