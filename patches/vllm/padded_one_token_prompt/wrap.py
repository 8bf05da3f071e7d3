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
#: Status of a request whose KV is on its way from another server
_IS_LOADED = "WAITING_FOR_REMOTE_KVS"


def is_one_token(target: Any, instance: Any, request: Any) -> bool:
    if request.num_tokens != 1 or not pads(instance) or not kinds_of_states(instance):
        return False
    return not short_ones_lead(instance)


def add_request(call: Any, instance: Any, request: Any) -> Any:
    """Remembers the request: the queues may be long, and steps are many."""
    vars(instance).setdefault(_WAIT, set()).add(request.request_id)
    return call()


def waits_with_one_token(target: Any, instance: Any) -> bool:
    return bool(vars(instance).get(_WAIT)) and pads(instance) and one_may_begin(instance) and verifies(instance)


def one_may_begin(scheduler: Any) -> bool:
    """Whether one of them may be in the next step: it does not run, and nothing of it is still to be loaded."""
    forget(scheduler)
    return any(may_begin(scheduler, scheduler.requests[name]) for name in vars(scheduler)[_WAIT])


def may_begin(scheduler: Any, request: Any) -> bool:
    if request.status.name == _IS_LOADED:
        return request.request_id in scheduler.finished_recving_kv_req_ids
    return bool(request.num_computed_tokens == 0)


def schedule(call: Any, instance: Any) -> Any:
    """Returns SchedulerOutput, in which a prompt of one token is one token."""
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
