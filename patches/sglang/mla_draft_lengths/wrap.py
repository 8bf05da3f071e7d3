"""Corrections of sglang.mla-draft-lengths.

Each draft step has a backend of its own, and all of them are given one batch, whose lengths are those of the cached tokens. The
backend of a step gets a copy of the batch in which the lengths count the drafts up to its own. What a step is planned with and
what its kernel is told must be the same: so what was planned is marked, and no other is read otherwise.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from attnfix.compat.fix import Call

#: The `Drafts` of a step, on its backend; on a batch and on what was planned: that their lengths count them
_DRAFTS, _COUNTED = "attnfix_drafts", "attnfix_drafts_counted"
#: Where trtllm_mla leaves what it has planned: on the batch, for whoever attends
_LEFT = "decode_trtllm_mla_metadata"


class Drafts(NamedTuple):
    """Drafts that a step attends to: those before it and its own. Tables of pages end at `limit` tokens; lists have none."""

    tokens: int
    limit: int | None


def init_lists(call: Call, instance: Any) -> Any:
    """`FlashInferMLAMultiStepDraftBackend(…)`."""
    result = call()
    if holds_all_keys(call.target.function):
        for tokens, step in enumerate(instance.attn_backends, 1):
            # 0.5.1 and 0.5.1.post1 plan in pages, of which a draft's lists know nothing, and have a buffer for their own lists
            limit = step.max_context_len if hasattr(step, "kv_indices") else None
            if getattr(step.indices_updater_decode, "page_size", 1) == 1:
                setattr(step, _DRAFTS, Drafts(tokens, limit))
    return result


def init_tables(call: Call, instance: Any) -> Any:
    """`FlashMLAMultiStepDraftBackend(…)`, `TRTLLMMLAMultiStepDraftBackend(…)`; their heirs make steps of their own."""
    result = call()
    if holds_all_keys(call.target.function):
        for tokens, step in enumerate(instance.attn_backends, 1):
            setattr(step, _DRAFTS, Drafts(tokens, step.max_context_len))
    return result


def holds_all_keys(function: Callable[..., Any]) -> bool:
    """Whether this rank has a request's whole cache: decode context parallelism counts what it has of it otherwise."""
    known = function.__globals__
    if "get_parallel" in known:
        return not known["get_parallel"]().dcp_enabled
    return "dcp_enabled" not in known or not known["dcp_enabled"]()


def drafts(target: Any, instance: Any, forward_batch: Any = None, forward_mode: Any = None) -> Drafts | None:
    """What a draft step attends to beside the cache; nothing on the target's own backend, or for a batch without requests."""
    found = vars(instance).get(_DRAFTS)
    if found is None:
        return None
    mode = forward_mode if forward_batch is None else forward_batch.forward_mode
    return found if mode.is_decode() else None


def plan(call: Call, instance: Any, forward_batch: Any) -> Any:
    """A batch's plan, or from 0.5.13 on that of a graph's capture or replay."""
    former, batch = planned(instance), counting(forward_batch, call.found)
    result = call(forward_batch=batch)
    mark(instance, former)
    if batch is not forward_batch and hasattr(batch, _LEFT):
        setattr(forward_batch, _LEFT, getattr(batch, _LEFT))
    call.corrected(len(forward_batch.seq_lens))
    return result


def plan_graph(call: Call, instance: Any, seq_lens: Any, seq_lens_cpu: Any = None) -> Any:
    """Up to 0.5.12.post1: a graph's capture or replay."""
    former, host = planned(instance), {}
    if seq_lens_cpu is not None:
        host["seq_lens_cpu"] = counted(seq_lens_cpu, call.found)
    result = call(seq_lens=counted(seq_lens, call.found), **host)
    mark(instance, former)
    call.corrected(len(seq_lens))
    return result


def planned_drafts(target: Any, instance: Any, forward_batch: Any) -> Drafts | None:
    found = drafts(target, instance, forward_batch)
    return found if found and hasattr(planned(instance), _COUNTED) else None


def forward_decode(call: Call, instance: Any, forward_batch: Any) -> Any:
    """With the step's own plan: on the batch lies that of the last step that was planned."""
    own = planned(instance)
    told = getattr(own, "seq_lens_k", None) is not None  # the kernel gets the plan's lengths
    batch = copy.copy(forward_batch) if told else counting(forward_batch, call.found)
    setattr(batch, _LEFT, own)
    return call(forward_batch=batch)


def counting(forward_batch: Any, drafts: Drafts) -> Any:
    """The batch, or a copy of it whose lengths count the drafts."""
    if hasattr(forward_batch, _COUNTED):
        return forward_batch
    batch = copy.copy(forward_batch)
    setattr(batch, _COUNTED, True)
    batch.seq_lens = counted(forward_batch.seq_lens, drafts)
    if forward_batch.seq_lens_cpu is not None:
        batch.seq_lens_cpu = counted(forward_batch.seq_lens_cpu, drafts)
    if forward_batch.seq_lens_sum is not None:
        batch.seq_lens_sum = forward_batch.seq_lens_sum + len(forward_batch.seq_lens) * drafts.tokens
    return batch


def counted(seq_lens: Any, drafts: Drafts) -> Any:
    """Never less than the engine's lengths: what lies beyond the limit is its own matter."""
    more = drafts.tokens if drafts.limit is None else (drafts.limit - seq_lens).clamp(0, drafts.tokens)
    return seq_lens + more


def planned(instance: Any) -> Any:
    own = vars(instance)
    return own.get("forward_decode_metadata") or own.get("forward_metadata")


def mark(instance: Any, former: Any) -> None:
    if (now := planned(instance)) is not former:
        setattr(now, _COUNTED, True)
