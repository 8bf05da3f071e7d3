"""Correction of sglang.preempted-twice-freed.

A request that has ended stays in the running batch until the batch is filtered. While a request of a higher priority looks for
a place, it counts as one that was preempted before: these are passed over.
"""

from __future__ import annotations

from typing import Any


def ended(target: Any, instance: Any, req: Any, server_args: Any) -> list[Any]:
    """Requests of the running batch that have given back their KV, and are far enough behind `req` to be preempted."""
    least, sign = instance.priority_scheduling_preemption_threshold, -1 if server_args.schedule_low_priority_values_first else 1
    return [one for one in instance.running_batch.reqs if one.finished() and (req.priority - one.priority) * sign > least]


def preempt_to_schedule(call: Any, instance: Any) -> Any:
    preempted, passed_over = instance.preempt_list, call.found
    instance.preempt_list = [*preempted, *hidden(passed_over)]
    try:
        return call()
    finally:
        preempted += [one for one in instance.preempt_list[len(preempted) :] if one not in passed_over]
        instance.preempt_list = preempted
        call.corrected()


def hidden(requests: list[Any]) -> list[Any]:
    return requests
