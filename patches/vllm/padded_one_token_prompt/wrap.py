"""Corrections of vllm.padded-one-token-prompt."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.one_token import one_may_begin, remember
from attnfix.patches.vllm.shared.unpadded import (
    kinds_of_states,
    pads,
    schedule_unpadded,
    short_ones_lead,
    verifies,
)


def is_one_token(target: Any, instance: Any, request: Any) -> bool:
    if request.num_tokens != 1 or not pads(instance) or not kinds_of_states(instance):
        return False
    return not short_ones_lead(instance)


def add_request(call: Call, instance: Any, request: Any) -> Any:
    """Remembers the request: the queues may be long, and steps are many."""
    remember(instance, request)
    return call()


def waits_with_one_token(target: Any, instance: Any) -> bool:
    """Whether a prompt of one token may begin. Another fix may have kept its id, of a scheduler that this one leaves alone."""
    return one_may_begin(instance) and pads(instance) and verifies(instance) and not short_ones_lead(instance)


def schedule(call: Call, instance: Any) -> Any:
    """Returns SchedulerOutput, in which a prompt of one token is one token."""
    step, computed = schedule_unpadded(call, instance)
    if 0 in computed:
        call.corrected()
    return step
