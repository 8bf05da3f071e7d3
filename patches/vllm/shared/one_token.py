"""Whether a prompt of one token may begin in the next step, at a cost that does not grow with the queue.

Ids of such requests are kept with the scheduler. Before a step a few of them are looked at, each time those that were not for
longest. If none of these may begin and others were not looked at, the answer is that one may. It may be wrong in this one
direction: to pad no prompt in a step is right whoever begins in it, and to leave a step alone is what the engine does itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

#: Kept with the scheduler: their ids, of some more than once
_KEPT = "attnfix_one_token"
#: Kept with a request: its tokens were counted
_COUNTED = "attnfix_tokens_counted"
#: Ids that are looked at before a step. Of those that may not begin, most have their first step under way
_LOOKS = 32
#: Status of a request whose KV is on its way from another server
_IS_LOADED = "WAITING_FOR_REMOTE_KVS"


def remember(scheduler: Any, request: Any) -> None:
    """Keeps the id of a request of one token, and looks at two others: no more are kept than twice those that wait or run."""
    kept = vars(scheduler).setdefault(_KEPT, deque())
    deque(some_of(scheduler, kept, 2), maxlen=0)
    kept.append(request.request_id)


def remember_new_ones(scheduler: Any) -> None:
    """The same of all requests that came since the last call: the scheduler's table has the newest ones last."""
    for request in reversed(scheduler.requests.values()):
        if hasattr(request, _COUNTED):
            return
        setattr(request, _COUNTED, True)
        if request.num_tokens == 1:
            remember(scheduler, request)


def one_may_begin(scheduler: Any) -> bool:
    """Whether a prompt of one token may begin in the next step, as far as a few of them tell."""
    kept = vars(scheduler).get(_KEPT)
    if not kept:
        return False
    all_are_seen = len(kept) <= _LOOKS
    return any(may_begin(scheduler, request) for request in some_of(scheduler, kept, _LOOKS)) or not all_are_seen


def may_begin(scheduler: Any, request: Any) -> bool:
    """Whether the request does not run, and nothing of it is still to be loaded. A grammar may be ready at any time."""
    if request.status.name == _IS_LOADED:
        return request.request_id in scheduler.finished_recving_kv_req_ids
    return bool(request.num_computed_tokens == 0)


def some_of(scheduler: Any, kept: deque[str], count: int) -> Iterator[Any]:
    """The next so many requests, which go to the end.

    Those that have got a token, or are gone, are forgotten: none begins with one token again. One that was preempted before,
    does.
    """
    for _ in range(min(count, len(kept))):
        name = kept.popleft()
        request = scheduler.requests.get(name)
        if request is not None and request.num_tokens == 1:
            kept.append(name)
            yield request
