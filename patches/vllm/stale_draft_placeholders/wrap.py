"""Correction of vllm.stale-draft-placeholders."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def left_out(target: Any, instance: Any, scheduler_output: Any) -> list[Any]:
    """Requests that hold placeholders for drafts, and of which the runner has none: this step leaves them out, or resumes them.

    Left alone: Model Runner V2, which keeps a request's drafts; ranks of tensor parallelism, whose embedding masks a token of
    -1; pipelines, whose steps leave requests out by turns; and models with recurrent states, which such a request would
    continue from another state than its own.
    """
    if not instance.num_spec_tokens:
        return []
    scheduled, resumed = scheduler_output.num_scheduled_tokens, scheduler_output.scheduled_cached_reqs.resumed_req_ids
    if len(scheduled) == len(instance.running) and not resumed:  # as in most steps
        return []
    config = instance.vllm_config
    parallel = config.parallel_config
    if parallel.tensor_parallel_size > 1 or parallel.pipeline_parallel_size > 1 or config.model_config.is_hybrid:
        return []
    if getattr(instance, "use_v2_model_runner", False):  # from 0.12.0
        return []
    waiting = [request for request in instance.running if request.request_id not in scheduled]
    back = [  # up to 0.13.0, preemption left them their placeholders
        request
        for request in map(instance.requests.get, resumed)
        if request.num_computed_tokens + scheduled[request.request_id] < request.num_tokens
    ]
    return [request for request in (*waiting, *back) if request.spec_token_ids and not ends(request, instance.max_model_len)]


def ends(request: Any, longest: int) -> bool:
    """Whether a request needs no further step: the one in flight samples its last token even where all drafts are refused."""
    last = min(request.num_prompt_tokens + request.max_tokens, longest)
    return bool(request.num_output_placeholders and request.num_tokens + 1 >= last)


def update_after_schedule(call: Call, instance: Any) -> None:
    """Once they are scheduled, they ask for the token that they lack. The engine adds placeholders for its samples."""
    withdraw(call.found)
    call()
    call.corrected(len(call.found))


def withdraw(requests: list[Any]) -> None:
    """Give up the drafts of requests. The list of placeholders is the scheduler's, of several requests."""
    for request in requests:
        request.spec_token_ids = []
