"""Corrections of vllm.padded-one-token-prompt."""

from __future__ import annotations

from typing import Any

from attnfix.patches.vllm.shared.unpadded import (
    begun_with_one_token,
    kinds_of_states,
    pads,
    short_ones_lead,
    unpadded,
    verifies,
)

#: Kept with the scheduler: the requests of one token, by id
_WAIT = "attnfix_one_token"


def is_one_token(target: Any, instance: Any, request: Any) -> bool:
    if request.num_tokens != 1 or not pads(instance) or not kinds_of_states(instance):
        return False
    return not short_ones_lead(instance)


def add_request(call: Any, instance: Any, request: Any) -> Any:
    """Remembers the request: the queues may be long, and steps are many."""
    vars(instance).setdefault(_WAIT, set()).add(request.request_id)
    return call()


def waits_with_one_token(target: Any, instance: Any) -> bool:
    return bool(vars(instance).get(_WAIT)) and pads(instance) and verifies(instance)


def schedule(call: Any, instance: Any) -> Any:
    """Returns SchedulerOutput, in which a prompt of one token is one token."""
    forget(instance)
    if not vars(instance)[_WAIT]:
        return call()
    with unpadded(instance):
        step = call()
    if begun_with_one_token(step):
        call.corrected()
    return step


def forget(scheduler: Any) -> None:
    """Those that have got a token, or are gone: none begins with one token again. One that was preempted before, does."""
    known = scheduler.requests
    ids = vars(scheduler)[_WAIT]
    ids.intersection_update([name for name in ids if name in known and known[name].num_tokens == 1])
