"""Steps in which the scheduler pads no prompt: for drafts of which a recurrent state must not be made (0.25.0-0.33.0).

Where one token is left of a prompt and other requests decode, the scheduler gives it as many tokens as they have, so that all
can be replayed in one graph. With a table of how many drafts there are for which batch, it does not: a step is run with a table
that says the same number for every batch, the server's own. What else the scheduler does is as without a table.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

from attnfix.compat.fix import Call
from attnfix.compat.gate.source_files import path_of
from attnfix.patches.shared.attribute import attribute

_TABLE = "dynamic_sd_lookup"
_KINDS = "attnfix_kinds_of_states"
_RUNNER_V2, _ORDER = "vllm.v1.worker.gpu.model_runner", b"def sort_batch_req_ids("


class Always:
    """A table of so many drafts, for a batch of any size."""

    def __init__(self, drafts: int):
        self.drafts = drafts

    def __getitem__(self, requests: int) -> int:
        return self.drafts


def pads(scheduler: Any) -> bool:
    """Whether it would pad the prompts of this step: it does not where it has a table, or no drafts."""
    return scheduler.num_spec_tokens > 0 and getattr(scheduler, _TABLE, 0) is None


def verifies(scheduler: Any) -> bool:
    """Whether drafts of a request are verified in the step that is scheduled next.

    In a step without any, layers are not told how many drafts were accepted last: they begin with another state, and with
    `mamba_cache_mode` "all" they end the server. There it is the padding that brings drafts, and it stays. A connector that is
    about to free blocks may stop the scheduler before any request (from 0.30.0 on).
    """
    about_to_free = getattr(getattr(scheduler, "connector", None), "has_pending_block_frees", None)
    if about_to_free is not None and about_to_free():
        return False
    if may_stop(scheduler):
        return the_first_has_drafts(scheduler) and (scheduler.cache_config.mamba_cache_mode != "all" or fits(scheduler))
    return any(request.spec_token_ids and runs_next(scheduler, request) for request in scheduler.running)


def may_stop(scheduler: Any) -> bool:
    """Whether the scheduler may stop at any request that runs, and take in requests that wait.

    It does where no block is left, and blocks of the request to preempt cannot be freed yet (from 0.30.0 on).
    """
    return hasattr(scheduler, "_request_blocks_can_be_freed") and scheduler.defer_block_free


def the_first_has_drafts(scheduler: Any) -> bool:
    """Whether, wherever the scheduler stops, drafts are verified or nobody that runs is in the step."""
    first = next((request for request in scheduler.running if not is_passed_over(scheduler, request)), None)
    return first is not None and bool(first.spec_token_ids) and runs_next(scheduler, first)


def fits(scheduler: Any) -> bool:
    """Whether free blocks are enough for a request that decodes, whatever the sizes of blocks.

    In each group of layers it may need some for its tokens, for its drafts, and for those that a drafter looks ahead.
    """
    groups = len(scheduler.kv_cache_config.kv_cache_groups)
    free: int = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    return free >= 3 * groups * (1 + scheduler.num_spec_tokens)


def runs_next(scheduler: Any, request: Any) -> bool:
    """Whether the scheduler takes this request, which runs and has drafts, into its next step, with one of them at least."""
    if request.num_computed_tokens >= scheduler.max_model_len - 2:  # no room for a draft
        return False
    if is_passed_over(scheduler, request) or request.is_prefill_chunk:
        return False
    return not (request.mm_features and getattr(scheduler, "ec_connector", None))  # who may wait for embeddings once more


def is_passed_over(scheduler: Any, request: Any) -> bool:
    """Whether the request's step under way is sure to be its last, or in a pipeline is too near."""
    tokens, under_way = request.num_computed_tokens, request.num_output_placeholders
    if under_way > 0 and tokens + 2 - under_way >= request.num_prompt_tokens + request.max_tokens:
        return True
    return bool(scheduler.current_step + 1 < request.next_decode_eligible_step)


def unpadded(scheduler: Any) -> AbstractContextManager[None]:
    """Inside, it pads no prompt."""
    return attribute(scheduler, _TABLE, Always(scheduler.num_spec_tokens))


def short_ones_lead(scheduler: Any) -> bool:
    """Whether the runner orders a batch by tokens alone, as Model Runner V2 of 0.25 does, and a layer splits it by this order.

    There a prompt of one token, unpadded, leads the batch. It is a prefill, and to all layers but Gated DeltaNet's, which go by
    drafts, every request behind a prefill is one: their drafts would get into their states.
    """
    if not getattr(scheduler, "use_v2_model_runner", False) or kinds_of_states(scheduler) <= {"GDN_ATTN"}:
        return False
    return orders_by_tokens(sys.modules["vllm"].__path__[0])


@cache
def orders_by_tokens(engine: str) -> bool:
    """Whether Model Runner V2 in this folder has no order of its own that puts verified drafts before all else.

    It is read, not imported: it may run in another process than the scheduler.
    """
    path = path_of(Path(engine), _RUNNER_V2)
    return path is None or _ORDER not in path.read_bytes()


def kinds_of_states(scheduler: Any) -> frozenset[str]:
    """Of the model's layers with a recurrent state, as `MambaAttentionBackendEnum` names them."""
    kinds: frozenset[str] | None = getattr(scheduler, _KINDS, None)
    if kinds is None:
        groups = [group.kv_cache_spec for group in scheduler.kv_cache_config.kv_cache_groups]
        # A group may hold the specs of its layers
        specs = [spec for group in groups for spec in (getattr(group, "kv_cache_specs", None) or {"": group}).values()]
        found = (getattr(spec, "mamba_type", None) for spec in specs)
        kinds = frozenset(str(getattr(kind, "name", kind)) for kind in found if kind is not None)
        setattr(scheduler, _KINDS, kinds)
    return kinds


def schedule_unpadded(call: Call, scheduler: Any) -> tuple[Any, list[int]]:
    """SchedulerOutput of a step without padding; how many tokens are computed of each request that was not padded for it."""
    at_prompts = [request.request_id for request in scheduler.running if request.is_prefill_chunk]
    with unpadded(scheduler):
        step = call()
    # Beside a chunk of a prompt nobody is padded
    beside_a_chunk = any(name in step.num_scheduled_tokens for name in at_prompts)
    return step, [] if beside_a_chunk else begun_with_one_token(scheduler, step)


def begun_with_one_token(scheduler: Any, step: Any) -> list[int]:
    """How many tokens are computed of each request that begins, or goes on after a preemption, with its last token alone.

    None counts where nobody else runs, or near the context limit, where placeholders have no room.
    """
    cached, scheduled = step.scheduled_cached_reqs, step.num_scheduled_tokens
    begun = {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
    held = zip(cached.req_ids, cached.num_computed_tokens)
    begun |= {name: computed for name, computed in held if name in cached.resumed_req_ids}
    if len(begun) == len(scheduled):
        return []
    most, requests = scheduler.max_model_len - 2 - scheduler.num_spec_tokens, scheduler.requests
    last = [(name, computed) for name, computed in begun.items() if scheduled[name] == 1 and computed <= most]
    return [computed for name, computed in last if requests[name].num_tokens == computed + 1]
